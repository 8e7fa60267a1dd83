/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Header cursor and one parse_* helper per header. A helper checks that its header lies inside the linear part of
 * the frame, points at it, moves the cursor behind it and says true; or says false and the frame ends or lies there.
 * Lengths and checksums of IP and UDP are not judged here: user space drops such frames with a name.
 *
 * No helper gives its header or NULL: to the compiler ctx->data is 32 bits wide, and a comparison with NULL would look
 * at half an address.
 */
#pragma once

#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Extension headers walked before giving up: every legal order of the ones we know fits. */
#define IPV6_EXT_HEADERS 6

#define IPV4_OFFSET 0x1fff
#define IPV6_OFFSET 0xfff8
#define VLAN_VID 0x0fff

struct cursor {
	void *pos;
	void *end;
};

struct vlan_tag {
	__be16 tci;
	__be16 type; /* EtherType of what follows */
};

struct ipv6_fragment {
	__u8 next;
	__u8 reserved;
	__be16 offset; /* offset in units of 8 bytes << 3, two reserved bits, more-fragments */
	__be32 id;
};

static __always_inline struct cursor frame_cursor(const struct xdp_md *ctx)
{
	return (struct cursor){ .pos = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
}

/* Points `header` at `size` bytes at the cursor, if they are all there. */
static __always_inline bool take(struct cursor *at, __u32 size, void **header)
{
	*header = at->pos;
	if (*header + size > at->end)
		return false;
	at->pos += size;
	return true;
}

static __always_inline bool parse_ethernet(struct cursor *at, struct ethhdr **ethernet)
{
	return take(at, sizeof(**ethernet), (void **)ethernet);
}

static __always_inline bool is_vlan(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

static __always_inline bool parse_vlan(struct cursor *at, struct vlan_tag **tag)
{
	return take(at, sizeof(**tag), (void **)tag);
}

static __always_inline __u16 vlan_vid(const struct vlan_tag *tag)
{
	return bpf_ntohs(tag->tci) & VLAN_VID;
}

/* Moves behind the options too. */
static __always_inline bool parse_ipv4(struct cursor *at, struct iphdr **ip)
{
	void *options;

	if (!take(at, sizeof(**ip), (void **)ip))
		return false;
	if ((*ip)->version != 4 || (*ip)->ihl < 5)
		return false;
	return take(at, (*ip)->ihl * 4 - sizeof(**ip), &options);
}

static __always_inline bool is_later_ipv4_fragment(const struct iphdr *ip)
{
	return ip->frag_off & bpf_htons(IPV4_OFFSET);
}

static __always_inline bool parse_ipv6(struct cursor *at, struct ipv6hdr **ip)
{
	return take(at, sizeof(**ip), (void **)ip) && (*ip)->version == 6;
}

enum ext_walk {
	EXT_DONE,
	EXT_CUT,
	EXT_LATER_FRAGMENT,
	EXT_TOO_MANY,
};

/*
 * Walks hop-by-hop options, destination options and fragment headers, and leaves the protocol behind them in
 * `next`. A fragment header with offset 0 is walked over: it is the first fragment or an atomic one (RFC 6946). Any
 * other header (routing, AH, ESP, …) ends the walk as the protocol it is.
 */
static __always_inline enum ext_walk skip_ipv6_extensions(struct cursor *at, __u8 *next)
{
	for (int walked = 0; walked <= IPV6_EXT_HEADERS; walked++) {
		bool fragment = *next == IPPROTO_FRAGMENT;

		if (!fragment && *next != IPPROTO_HOPOPTS && *next != IPPROTO_DSTOPTS)
			return EXT_DONE;
		if (walked == IPV6_EXT_HEADERS)
			return EXT_TOO_MANY;
		if (fragment) {
			struct ipv6_fragment *header;

			if (!take(at, sizeof(*header), (void **)&header))
				return EXT_CUT;
			if (header->offset & bpf_htons(IPV6_OFFSET))
				return EXT_LATER_FRAGMENT;
			*next = header->next;
		} else {
			struct ipv6_opt_hdr *header;
			void *options;

			if (!take(at, sizeof(*header), (void **)&header))
				return EXT_CUT;
			/* hdrlen counts units of 8 bytes behind the first. */
			if (!take(at, header->hdrlen * 8 + 8 - sizeof(*header), &options))
				return EXT_CUT;
			*next = header->nexthdr;
		}
	}
	return EXT_TOO_MANY;
}

static __always_inline bool parse_udp(struct cursor *at, struct udphdr **udp)
{
	return take(at, sizeof(**udp), (void **)udp);
}

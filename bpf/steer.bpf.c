// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * XDP steering: redirects the frames that are ours to the AF_XDP socket of the queue they arrived on, and leaves
 * everything else to the kernel. One copy with its own maps is loaded per port. It reads headers and counts; it
 * changes no byte, keeps no state and judges no length or checksum.
 */
#include "parse.h"
#include "steer_abi.h"

#define VXLAN_PORT 4789
#define ROCE_PORT 4791

/* A map rather than constants, so that a running port can be reconfigured. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct steer_config);
} steer_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, STEER_QUEUES);
	__type(key, __u32); /* RX queue */
	__type(value, __u32);
} xsks SEC(".maps");

/* Twice the limit, because user space puts a new set in before it takes the old one out. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * STEER_ENCAP_IPS);
	__type(key, __be32);
	__type(value, __u8);
} encap_ip4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * STEER_ENCAP_IPS);
	__type(key, struct in6_addr);
	__type(value, __u8);
} encap_ip6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STEER_OUTCOMES);
	__type(key, __u32); /* enum steer_outcome */
	__type(value, struct steer_count);
} outcomes SEC(".maps");

static __always_inline enum steer_outcome by_port(struct cursor *at, const struct steer_config *config,
						  void *encap_ips, const void *dst)
{
	bool underlay = config->mode == STEER_MODE_UNDERLAY;
	struct udphdr *udp;

	if (!parse_udp(at, &udp))
		return STEER_MALFORMED;
	if (underlay && udp->dest == bpf_htons(VXLAN_PORT))
		return bpf_map_lookup_elem(encap_ips, dst) ? STEER_VXLAN : STEER_NOT_LOCAL;
	if ((!underlay || config->native_roce) && udp->dest == bpf_htons(ROCE_PORT))
		return STEER_ROCE;
	return STEER_PORT;
}

static __always_inline enum steer_outcome by_ipv4(struct cursor *at, const struct steer_config *config)
{
	struct iphdr *ip;

	if (!parse_ipv4(at, &ip))
		return STEER_MALFORMED;
	/* The bytes behind the header of a later fragment are payload, whatever they look like. */
	if (is_later_ipv4_fragment(ip))
		return STEER_FRAGMENT;
	if (ip->protocol != IPPROTO_UDP)
		return STEER_NOT_UDP;
	return by_port(at, config, &encap_ip4, &ip->daddr);
}

static __always_inline enum steer_outcome by_ipv6(struct cursor *at, const struct steer_config *config)
{
	struct ipv6hdr *ip;
	__u8 next;

	if (!parse_ipv6(at, &ip))
		return STEER_MALFORMED;
	next = ip->nexthdr;
	switch (skip_ipv6_extensions(at, &next)) {
	case EXT_CUT:
		return STEER_MALFORMED;
	case EXT_LATER_FRAGMENT:
		return STEER_FRAGMENT;
	case EXT_TOO_MANY:
		return STEER_EXT_HEADERS;
	case EXT_DONE:
		break;
	}
	if (next != IPPROTO_UDP)
		return STEER_NOT_UDP;
	return by_port(at, config, &encap_ip6, &ip->daddr);
}

static __always_inline enum steer_outcome by_headers(struct cursor *at, const struct steer_config *config)
{
	struct ethhdr *ethernet;
	__u16 vid = STEER_UNTAGGED;
	__be16 type;

	if (!parse_ethernet(at, &ethernet))
		return STEER_MALFORMED;
	type = ethernet->h_proto;
	if (is_vlan(type)) {
		struct vlan_tag *tag;

		if (!parse_vlan(at, &tag))
			return STEER_MALFORMED;
		/* A tenant's tag means something to the tenant, VID 0 included. */
		if (config->mode == STEER_MODE_OVERLAY_ROCE)
			return STEER_VLAN;
		vid = vlan_vid(tag);
		type = tag->type;
	}
	if (vid != config->vlan || is_vlan(type))
		return STEER_VLAN;
	if (type == bpf_htons(ETH_P_IP))
		return by_ipv4(at, config);
	if (type == bpf_htons(ETH_P_IPV6))
		return by_ipv6(at, config);
	return STEER_NOT_IP;
}

static __always_inline enum steer_outcome classify(const struct xdp_md *ctx, const struct steer_config *config)
{
	struct cursor at = frame_cursor(ctx);

	switch (config->mode) {
	case STEER_MODE_OVERLAY_ALL:
		return STEER_ALL;
	case STEER_MODE_UNDERLAY:
	case STEER_MODE_OVERLAY_ROCE:
		return by_headers(&at, config);
	default:
		return STEER_UNCONFIGURED;
	}
}

static __always_inline void count(enum steer_outcome outcome, __u64 bytes)
{
	__u32 key = outcome;
	struct steer_count *count = bpf_map_lookup_elem(&outcomes, &key);

	if (!count)
		return;
	count->packets++;
	count->bytes += bytes;
}

SEC("xdp.frags")
int flowrail_steer(struct xdp_md *ctx)
{
	__u32 key = 0;
	const struct steer_config *config = bpf_map_lookup_elem(&steer_config, &key);
	enum steer_outcome outcome = config ? classify(ctx, config) : STEER_UNCONFIGURED;
	int action = XDP_PASS;

	switch (outcome) {
	case STEER_VXLAN:
	case STEER_ROCE:
	case STEER_ALL:
		/* The flag is the action for a queue without a socket. */
		action = bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_DROP);
		if (action != XDP_REDIRECT)
			outcome = STEER_NO_SOCKET;
		break;
	case STEER_UNCONFIGURED:
		action = XDP_ABORTED;
		break;
	default:
		break;
	}
	count(outcome, bpf_xdp_get_buff_len(ctx));
	return action;
}

/* The kernel's name for MIT OR GPL-2.0. */
char steer_license[] SEC("license") = "Dual MIT/GPL";

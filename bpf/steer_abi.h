/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the steering program and user space share: settings, outcomes and map sizes. src/bpf/abi.rs is the same
 * in Rust; both sides assert the layout, and tests/steer.rs compares the outcomes with this text.
 */
#pragma once

#include <linux/types.h>
#include <stddef.h>

/* Queues of one port that can have a socket. A frame of a higher queue is dropped as no_socket. */
#define STEER_QUEUES 1024
/* Encap IPs of one address family. */
#define STEER_ENCAP_IPS 256
/* `vlan` of a port without VLAN: frames carry no tag, or a priority tag, which has VID 0 (IEEE 802.1Q). */
#define STEER_UNTAGGED 0

enum steer_mode {
	STEER_MODE_UNSET = 0,
	STEER_MODE_UNDERLAY = 1,
	STEER_MODE_OVERLAY_ALL = 2,
	STEER_MODE_OVERLAY_ROCE = 3,
};

/* Element 0 of the map `steer_config`. Host byte order. */
struct steer_config {
	__u8 mode;        /* enum steer_mode */
	__u8 native_roce; /* underlay: RoCEv2 outside VXLAN is ours as well */
	__u16 vlan;       /* VID that a frame must carry, or STEER_UNTAGGED */
};

_Static_assert(sizeof(struct steer_config) == 4, "steer_config is 4 bytes");
_Static_assert(offsetof(struct steer_config, mode) == 0, "steer_config.mode");
_Static_assert(offsetof(struct steer_config, native_roce) == 1, "steer_config.native_roce");
_Static_assert(offsetof(struct steer_config, vlan) == 2, "steer_config.vlan");

/* Key of the map `outcomes`: where a frame went and why. Every frame counts in exactly one. */
enum steer_outcome {
	/* To the socket of the frame's queue. */
	STEER_VXLAN = 0, /* UDP 4789 to one of our encap IPs */
	STEER_ROCE = 1,  /* UDP 4791 */
	STEER_ALL = 2,   /* overlay port that takes every frame */
	/* Dropped. */
	STEER_NO_SOCKET = 3, /* ours, but its queue has no socket: a tenant's frame never falls to the host */
	/* To the kernel. */
	STEER_VLAN = 4,        /* not the tag this port expects */
	STEER_NOT_IP = 5,
	STEER_MALFORMED = 6,   /* a header that cannot be, or that ends before it is whole */
	STEER_FRAGMENT = 7,    /* IP fragment other than the first: has no ports */
	STEER_EXT_HEADERS = 8, /* more IPv6 extension headers than we walk */
	STEER_NOT_UDP = 9,
	STEER_PORT = 10,       /* UDP to a port that isn't ours */
	STEER_NOT_LOCAL = 11,  /* UDP 4789 to an address that isn't an encap IP of ours */
	/* Aborted: attached before it was given its settings. */
	STEER_UNCONFIGURED = 12,
	STEER_OUTCOMES = 13,
};

/* Value of the map `outcomes`, one per CPU. */
struct steer_count {
	__u64 packets;
	__u64 bytes; /* whole frames, all fragments of a multi-buffer frame included */
};

_Static_assert(sizeof(struct steer_count) == 16, "steer_count is 16 bytes");
_Static_assert(offsetof(struct steer_count, packets) == 0, "steer_count.packets");
_Static_assert(offsetof(struct steer_count, bytes) == 8, "steer_count.bytes");

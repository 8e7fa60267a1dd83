// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Every BPF program of the throughput harness: source, sink, reflector, steering of the reference l2fwd, CPU meter.
 * The harness compiles this file at start, and a role loads from it only the programs it needs.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define VNI 100
#define VXLAN_PORT 4789
#define ROCE_PORT 4791
#define OFF_IP_PROTO 23
#define OFF_UDP_SPORT 34
#define OFF_UDP_DPORT 36
#define OFF_UDP_END 42
#define OFF_VNI 46
#define OUTER_LEN 50

/* ---- source: one pass of a live frame, see generator.rs ------------------------------------------------------ */

#define HEAD_SHORT 64
#define HEAD_LONG 112

struct source {
	__u64 head[HEAD_LONG / 8]; /* the first bytes of the frame */
	__u64 sent;		   /* passes so far */
	__u32 flow_mask;	   /* number of flows - 1 */
	__u32 outer;		   /* 1: the frame is VXLAN, and the inner source port follows at OUTER_LEN */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct source);
} source SEC(".maps");

/* Pages are recycled with whatever the forwarder wrote into them, so the header is restored on every pass. */
SEC("xdp")
int source_tx(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u64 *words = (__u64 *)data;
	__u32 zero = 0;
	struct source *s = bpf_map_lookup_elem(&source, &zero);
	__u8 flow;
	int i;

	if (!s || (void *)(data + HEAD_SHORT) > end)
		return XDP_ABORTED;
#pragma unroll
	for (i = 0; i < HEAD_SHORT / 8; i++)
		words[i] = s->head[i];
	flow = s->sent++ & s->flow_mask;
	data[OFF_UDP_SPORT + 1] = flow;
	if ((void *)(data + HEAD_LONG) > end)
		return XDP_TX;
#pragma unroll
	for (i = HEAD_SHORT / 8; i < HEAD_LONG / 8; i++)
		words[i] = s->head[i];
	if (s->outer)
		data[OUTER_LEN + OFF_UDP_SPORT + 1] = flow;
	return XDP_TX;
}

/* ---- sink: count and drop ------------------------------------------------------------------------------------ */

struct tally {
	__u64 packets;
	__u64 bytes;
	__u64 vxlan;
	__u64 roce;
	__u64 first_ns; /* CLOCK_MONOTONIC of the first frame, 0 before */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tally SEC(".maps");

/* UDP destination port of an IPv4 frame without options; 0 for all else. */
static __always_inline __u16 udp_port(__u8 *data, void *end)
{
	if ((void *)(data + OFF_UDP_END) > end)
		return 0;
	if (data[12] != 0x08 || data[13] != 0 || data[14] != 0x45 || data[OFF_IP_PROTO] != 17)
		return 0;
	return bpf_ntohs(*(__u16 *)(data + OFF_UDP_DPORT));
}

SEC("xdp.frags")
int sink(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct tally *t = bpf_map_lookup_elem(&tally, &zero);
	__u16 port = udp_port(data, end);

	if (!t)
		return XDP_ABORTED;
	if (port == VXLAN_PORT) {
		/* another VNI is not ours to count */
		if ((void *)(data + OUTER_LEN) > end || data[OFF_VNI] || data[OFF_VNI + 1] || data[OFF_VNI + 2] != VNI)
			return XDP_DROP;
		t->vxlan++;
	} else if (port == ROCE_PORT) {
		t->roce++;
	} else {
		return XDP_PASS;
	}
	if (!t->packets++)
		t->first_ns = bpf_ktime_get_ns();
	t->bytes += bpf_xdp_get_buff_len(ctx);
	return XDP_DROP;
}

/* ---- reflector: the far VTEP of the latency test ------------------------------------------------------------- */

static __always_inline void swap_macs(__u8 *p)
{
	__u16 *w = (__u16 *)p, t;

	t = w[0], w[0] = w[3], w[3] = t;
	t = w[1], w[1] = w[4], w[4] = t;
	t = w[2], w[2] = w[5], w[5] = t;
}

static __always_inline void swap_ips(__u8 *p)
{
	__u32 *w = (__u32 *)p, t;

	t = w[0], w[0] = w[1], w[1] = t;
}

SEC("xdp.frags")
int reflect(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u16 port = udp_port(data, end);

	if (port != VXLAN_PORT && port != ROCE_PORT)
		return XDP_PASS;
	swap_macs(data);
	swap_ips(data + 26);
	if (port == VXLAN_PORT && (void *)(data + OUTER_LEN + OFF_UDP_END) <= end) {
		swap_macs(data + OUTER_LEN);
		swap_ips(data + OUTER_LEN + 26);
	}
	/* XDP_TX would kick the veth peer only if that end had a program; a redirect needs its NAPI alone. */
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

/* ---- steering of the reference l2fwd: everything to the socket of its queue ---------------------------------- */

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp.frags")
int to_socket(struct xdp_md *ctx)
{
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
}

/* ---- CPU meter: user and kernel time of one process, exact to the system call -------------------------------- */

/* The scheduler's own split is sampled by the tick, far too coarse for tens of ns per packet. */
struct task_struct {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));

struct account {
	__u64 user_ns;
	__u64 kernel_ns;
	__u64 since; /* start of the current stretch, 0 while off the CPU */
	__u64 in_kernel;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32); /* thread */
	__type(value, struct account);
} accounts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32); /* process */
} metered SEC(".maps");

static __always_inline int is_metered(__u32 tgid)
{
	__u32 zero = 0, *wanted = bpf_map_lookup_elem(&metered, &zero);

	return wanted && *wanted == tgid;
}

static __always_inline void close_stretch(struct account *a, __u64 now)
{
	if (a->since && a->in_kernel)
		a->kernel_ns += now - a->since;
	else if (a->since)
		a->user_ns += now - a->since;
}

static __always_inline void cross(__u64 into_kernel)
{
	__u64 id = bpf_get_current_pid_tgid(), now;
	__u32 tid = (__u32)id;
	struct account *a;

	if (!is_metered(id >> 32))
		return;
	now = bpf_ktime_get_ns();
	a = bpf_map_lookup_elem(&accounts, &tid);
	if (!a) {
		struct account fresh = { .since = now, .in_kernel = into_kernel };

		bpf_map_update_elem(&accounts, &tid, &fresh, BPF_ANY);
		return;
	}
	close_stretch(a, now);
	a->since = now;
	a->in_kernel = into_kernel;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(meter_enter)
{
	cross(1);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(meter_exit)
{
	cross(0);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(meter_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct account *a;
	__u32 tid;

	if (is_metered(prev->tgid)) {
		tid = prev->pid;
		a = bpf_map_lookup_elem(&accounts, &tid);
		if (a) {
			close_stretch(a, bpf_ktime_get_ns());
			a->since = 0;
		}
	}
	if (is_metered(next->tgid)) {
		tid = next->pid;
		a = bpf_map_lookup_elem(&accounts, &tid);
		if (a)
			a->since = bpf_ktime_get_ns();
	}
	return 0;
}

# shellcheck shell=bash
# Two hosts with a VTEP each, in network namespaces. Sourced by scripts/demo and scripts/rig/roce.
#
#   tenant ta  t0 ── p0  host a  u0 ════ u0  host b  p0 ── t0  tenant tb
#                       10.0.0.1       10.0.0.2
#
# HOSTS is the prefix of every namespace, STATE a directory for logs and configurations. Whatever runs in the
# namespaces belongs to them: hosts_down ends it.

UNDERLAY_MTU=9214
TENANT_MTU=9000
VNI=100
declare -A PEER=([a]=b [b]=a) NUMBER=([a]=1 [b]=2)

encap_ip() { echo "10.0.0.${NUMBER[$1]}"; }
tenant_ip() { echo "192.168.1.${NUMBER[$1]}"; }
tenant_mac() { echo "02:00:00:00:0a:0${NUMBER[$1]}"; }

# Runs a command on host a or b, in tenant ta or tb, or on the switch. File 9 is the lock, which no child may keep.
on() {
    local name=$1
    shift
    ip netns exec "$HOSTS-$name" "$@" 9>&-
}

# start FILE NAME COMMAND...: the same in the background, its output in FILE. `$!` is the command itself.
start() {
    local file=$1 name=$2
    shift 2
    ip netns exec "$HOSTS-$name" "$@" >"$file" 2>&1 9>&- &
}

# Waits until COMMAND succeeds, ten seconds at most.
until_true() {
    for _ in $(seq 200); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.05
    done
    return 1
}

# One at a time: stale namespaces are nobody's only while the lock is held.
hosts_lock() {
    mkdir -p "$STATE"
    exec 9>"$STATE/lock"
    flock -n 9 || fail "another one is running (it holds $STATE/lock)"
}

# Ends all that runs in the namespaces and removes them, whoever left them.
hosts_down() {
    local name names
    names=$(ip netns list | awk -v prefix="$HOSTS-" 'index($1, prefix) == 1 {print $1}')
    for name in $names; do
        ip netns pids "$name" | xargs -r kill 2>/dev/null
    done
    for name in $names; do
        # A forwarder drains before it ends; what does not end by itself is made to.
        for _ in $(seq 40); do
            [ -n "$(ip netns pids "$name")" ] || break
            sleep 0.05
        done
        ip netns pids "$name" | xargs -r kill -9 2>/dev/null
        ip netns del "$name"
    done
}

namespace() {
    ip netns add "$HOSTS-$1"
    on "$1" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
    on "$1" ip link set lo up
}

# veth NAMESPACE DEVICE MAC  NAMESPACE DEVICE MAC  MTU
veth() {
    on "$1" ip link add "$2" address "$3" mtu "$7" type veth peer name "$5" netns "$HOSTS-$4" address "$6" mtu "$7"
    on "$1" ip link set "$2" up
    on "$4" ip link set "$5" up
}

# The hosts and the wire between them; with "switched", a bridge where the wire can be captured.
hosts_up() {
    local host
    for host in a b; do namespace $host; done
    if [ "${1:-}" = switched ]; then
        namespace switch
        on switch ip link add br0 mtu $UNDERLAY_MTU type bridge mcast_snooping 0
        on switch ip link set br0 up
        for host in a b; do
            veth $host u0 "02:00:00:00:01:0${NUMBER[$host]}" switch "to_$host" "02:00:00:00:03:0${NUMBER[$host]}" \
                $UNDERLAY_MTU
            on switch ip link set "to_$host" master br0
        done
    else
        veth a u0 02:00:00:00:01:01 b u0 02:00:00:00:01:02 $UNDERLAY_MTU
    fi
    for host in a b; do
        # An underlay NIC finishes the checksums of what it sends.
        on $host ethtool -K u0 tx off tso off gso off >/dev/null
        on $host ip addr add "$(encap_ip $host)/24" dev u0
    done
}

# A namespace as the tenant of HOST.
tenant_up() {
    local host=$1
    namespace "t$host"
    veth "t$host" t0 "$(tenant_mac "$host")" "$host" p0 "02:00:00:00:02:0${NUMBER[$host]}" $TENANT_MTU
    on "t$host" ip addr add "$(tenant_ip "$host")/24" dev t0
}

# The kernel's VXLAN device and a bridge as the VTEP of HOST.
kernel_vtep() {
    local host=$1
    on "$host" ip link add vx$VNI mtu $TENANT_MTU type vxlan id $VNI dev u0 local "$(encap_ip "$host")" \
        remote "$(encap_ip "${PEER[$host]}")" dstport 4789 nolearning tos inherit
    on "$host" ip link add br$VNI mtu $TENANT_MTU type bridge mcast_snooping 0
    on "$host" ip link set vx$VNI master br$VNI up
    on "$host" ip link set p0 master br$VNI
    on "$host" ip link set br$VNI up
}

# flowrail BINARY as the VTEP of HOST, its worker on CORE.
flowrail_vtep() {
    local host=$1 binary=$2 core=$3 config=$STATE/$1.toml
    cat >"$config" <<TOML
[workers]
cores = [$core]
idle = "adaptive"

[control]
socket = "$STATE/$host.sock"

[[uplink]]
interface = "u0"
encap_ips = ["$(encap_ip "$host")"]

[[peer]]
name = "far"
encap_ips = ["$(encap_ip "${PEER[$host]}")"]
[[peer.endpoint]]
network = "blue"
mac = "$(tenant_mac "${PEER[$host]}")"

[[network]]
name = "blue"
vni = $VNI
peers = ["far"]

[[port]]
interface = "p0"
network = "blue"
steer = "all"
macs = ["$(tenant_mac "$host")"]
TOML
    start "$STATE/$host.log" "$host" "$binary" run --config "$config"
    until_true "$binary" show stats --socket "$STATE/$host.sock" ||
        fail "flowrail on host $host did not start: $(cat "$STATE/$host.log")"
}

# vtep KIND HOST BINARY
vtep() {
    case $1 in
    kernel) kernel_vtep "$2" ;;
    flowrail) flowrail_vtep "$2" "$3" $((NUMBER[$2] % $(nproc))) ;;
    esac
}

# conserved BINARY HOST: every packet that host's flowrail received has a fate, once traffic is at rest.
conserved() {
    "$1" show stats --json --socket "$STATE/$2.sock" >"$STATE/$2.stats"
    "$1" show ports --json --socket "$STATE/$2.sock" >"$STATE/$2.ports"
    python3 - "$STATE/$2" <<'PYTHON' || fail "the counters of host $2 do not add up"
import json, sys
totals = json.load(open(sys.argv[1] + ".stats"))["totals"]
drops = {reason: count for reason, count in totals["drops"].items() if count}
fates = [totals["forwarded"], totals["replied"], totals["punted"], sum(drops.values())]
sums = "received {} = forwarded {} + replied {} + punted {} + dropped {}".format(totals["received"], *fates)
print("flowrail on host", sys.argv[1][-1] + ":", sums, drops or "")
sockets = [port["sockets"] for port in json.load(open(sys.argv[1] + ".ports"))]
lost = sum(socket["rx_dropped"] + socket["rx_ring_full"] for socket in sockets)
if lost:
    print("    The kernel lost", lost, "frames before: flowrail's core was busy with something else for too long.")
sys.exit(sum(fates) != totals["received"])
PYTHON
}

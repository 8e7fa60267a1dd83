//! Says which capability is missing when the kernel answers EPERM or EACCES, which do not say it.

use std::fmt;
use std::fs;

/// Which of the capabilities that steering needs the calling thread lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingCapabilities(Vec<&'static str>);

impl MissingCapabilities {
    pub(super) fn of_this_thread() -> Self {
        Self::from_status(&fs::read_to_string("/proc/thread-self/status").unwrap_or_default())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn from_status(status: &str) -> Self {
        const NET_ADMIN: u32 = 12;
        const SYS_ADMIN: u32 = 21;
        const PERFMON: u32 = 38;
        const BPF: u32 = 39;
        let held = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        let lacks = |capability: u32| held.is_some_and(|held| held >> capability & 1 == 0);
        let mut missing = Vec::new();
        // CAP_SYS_ADMIN stands for all of them.
        if lacks(SYS_ADMIN) {
            missing.extend(lacks(BPF).then_some("CAP_BPF"));
            // Options and extension headers put variable offsets on packet pointers, which the verifier grants to this
            // capability alone where the CPU needs Spectre mitigations.
            missing.extend(lacks(PERFMON).then_some("CAP_PERFMON"));
            missing.extend(lacks(NET_ADMIN).then_some("CAP_NET_ADMIN"));
        }
        Self(missing)
    }
}

impl fmt::Display for MissingCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN are held, so a user namespace, seccomp or kernel lockdown forbids it",
            );
        }
        write!(
            f,
            "missing {}; run as root, or `setcap cap_bpf,cap_perfmon,cap_net_admin,cap_net_raw+ep` the flowrail binary",
            self.0.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(mask: u64) -> String {
        MissingCapabilities::from_status(&format!("Name:\tx\nCapEff:\t{mask:016x}\nCapBnd:\t0\n")).to_string()
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(missing(0).starts_with("missing CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN;"));
        assert!(missing(1 << 39 | 1 << 38).starts_with("missing CAP_NET_ADMIN;"));
        assert!(missing(1 << 12 | 1 << 38).starts_with("missing CAP_BPF;"));
        assert!(missing(1 << 39 | 1 << 12).starts_with("missing CAP_PERFMON;"));
        assert!(missing(1 << 39 | 1 << 38 | 1 << 12).contains("are held"));
        assert!(missing(1 << 21).contains("are held"));
    }
}

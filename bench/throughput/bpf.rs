//! Compiles the harness's BPF programs once and loads them, each role only what it needs.
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use libbpf_rs::{Link, MapCore, MapHandle, Object, ObjectBuilder, PrintLevel};

const SOURCE: &str = include_str!("progs.bpf.c");

/// Compiles `progs.bpf.c` into `directory` and returns the object's path.
pub fn compile(directory: &Path) -> Result<PathBuf> {
    let source = directory.join("progs.bpf.c");
    let object = directory.join("progs.bpf.o");
    std::fs::write(&source, SOURCE).with_context(|| format!("write {}", source.display()))?;
    let output = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-I"])
        // asm/types.h is where Debian's multiarch puts it
        .arg(format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .context("run clang: apt-get install clang libbpf-dev")?;
    if !output.status.success() {
        bail!("clang refused progs.bpf.c:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(object)
}

/// Loads `object` with only `programs` in it.
pub fn load(object: &Path, programs: &[&str]) -> Result<Object> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| eprint!("{text}"))));
    let mut open = ObjectBuilder::default()
        .open_file(object)
        .with_context(|| format!("open BPF object {}", object.display()))?;
    for mut program in open.progs_mut() {
        let wanted = programs.iter().any(|name| program.name() == *name);
        program.set_autoload(wanted);
    }
    open.load().with_context(|| format!("load BPF programs {programs:?}: needs root"))
}

/// The map called `name`.
pub fn map(object: &Object, name: &str) -> Result<MapHandle> {
    let map = object.maps().find(|map| map.name() == name).with_context(|| format!("no BPF map {name}"))?;
    MapHandle::try_from(&map).with_context(|| format!("open BPF map {name}"))
}

/// Attaches XDP program `name` to `interface` of this network namespace until the link is dropped, in native mode
/// wherever the driver has one.
pub fn attach_xdp(object: &Object, name: &str, interface: &str) -> Result<Link> {
    let index = ifindex(interface)?;
    let program = object
        .progs_mut()
        .find(|program| program.name() == name)
        .with_context(|| format!("no program {name}"))?;
    program.attach_xdp(index).with_context(|| format!("attach {name} to {interface}"))
}

/// File descriptor number of program `name`.
pub fn program_fd(object: &Object, name: &str) -> Result<i32> {
    use std::os::fd::AsRawFd;
    let program =
        object.progs().find(|program| program.name() == name).with_context(|| format!("no {name}"))?;
    Ok(program.as_fd().as_raw_fd())
}

/// Index of `interface` in this network namespace.
pub fn ifindex(interface: &str) -> Result<i32> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(std::io::Error::last_os_error()).with_context(|| format!("interface {interface}")),
        index => Ok(i32::try_from(index)?),
    }
}

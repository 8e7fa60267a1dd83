//! Compiles the steering program (`bpf/steer.bpf.c`) with clang into `OUT_DIR` and hands its path to the crate and its
//! tests as `FLOWRAIL_STEER_OBJECT`. `FLOWRAIL_CLANG` names another clang.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, io};

const INSTALL: &str = "apt-get install clang libbpf-dev linux-libc-dev";
const SOURCES: [&str; 3] = ["bpf/steer.bpf.c", "bpf/steer_abi.h", "bpf/parse.h"];

fn main() -> ExitCode {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    println!("cargo::rerun-if-env-changed=FLOWRAIL_CLANG");
    match compile() {
        Ok(object) => {
            println!("cargo::rustc-env=FLOWRAIL_STEER_OBJECT={}", object.display());
            ExitCode::SUCCESS
        }
        Err(message) => {
            for line in message.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn compile() -> Result<PathBuf, String> {
    let root = variable("CARGO_MANIFEST_DIR")?;
    let object = Path::new(&variable("OUT_DIR")?).join("steer.bpf.o");
    let clang = env::var("FLOWRAIL_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let byte_order = if variable("CARGO_CFG_TARGET_ENDIAN")? == "big" { "bpfeb" } else { "bpfel" };

    let mut command = Command::new(&clang);
    command
        .args(["-target", byte_order, "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        // Debug information names the source by its place in the repository: builds elsewhere give the same object.
        .arg(format!("-ffile-prefix-map={root}=."))
        .args(asm_headers(&variable("CARGO_CFG_TARGET_ARCH")?).map(|dir| format!("-idirafter{dir}")))
        .arg("-c")
        .arg(Path::new(&root).join(SOURCES[0]))
        .arg("-o")
        .arg(&object);
    let output = command.output().map_err(|error| not_started(&clang, &error))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(object);
    }
    Err(if stderr.contains("file not found") {
        format!("{stderr}\na header of the steering program is missing: {INSTALL}")
    } else if stderr.contains("unknown target") || stderr.contains("No available targets") {
        format!("{stderr}\n{clang} cannot compile for BPF: {INSTALL}, or name another with FLOWRAIL_CLANG")
    } else {
        format!("{stderr}\n{clang} refused {}", SOURCES[0])
    })
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}; build with cargo"))
}

fn not_started(clang: &str, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        format!(
            "{clang} not found; it compiles the steering program: {INSTALL}, or name another with FLOWRAIL_CLANG"
        )
    } else {
        format!("{clang} did not start: {error}")
    }
}

/// Where a multiarch system keeps `asm/types.h`, which the kernel's headers include and the BPF target does not know.
fn asm_headers(arch: &str) -> Option<String> {
    let directory = format!("/usr/include/{arch}-linux-gnu");
    Path::new(&directory).is_dir().then_some(directory)
}

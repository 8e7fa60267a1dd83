//! The `flowrail` program.

fn main() -> std::process::ExitCode {
    flowrail::cli::main()
}

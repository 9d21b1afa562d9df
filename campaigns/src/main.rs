//! Long searches for defects, started by `cargo xtask fuzz options|faults|hostile|kernels`. Each search makes its own input from a
//! seed, runs the `ferofs` command that `FEROFS_BIN` names, and prints each failure as a command that repeats it.

mod faults;
mod hostile;
mod kernels;
/// Linux in virtual machines, and what it shows of images.
mod linux {
    pub(crate) mod digest;
    pub(crate) mod guest;
    pub(crate) mod machine;
}
mod options;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["options", rest @ ..] => options::run(rest),
        ["faults", rest @ ..] => faults::run(rest),
        ["hostile", rest @ ..] => hostile::run(rest),
        ["kernels", rest @ ..] => kernels::run(rest),
        // The program in the virtual machine.
        ["guest"] => linux::guest::run(),
        _ => Err(anyhow::anyhow!("usage: ferofs-campaigns options|faults|hostile|kernels [OPTIONS]")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferofs-campaigns: {error:#}");
            ExitCode::FAILURE
        }
    }
}

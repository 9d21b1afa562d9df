//! Long searches for defects, started by `cargo xtask fuzz options|faults|hostile|kernels`. Each
//! search makes its own input from a seed, runs the `ferofs` command that `FEROFS_BIN` names, and
//! prints each failure as a command that repeats it.

// It knows the registers and the numbers of system calls of this processor.
#[cfg(target_arch = "x86_64")]
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

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::thread::available_parallelism;

use clap::Parser;

/// Long searches for defects
#[derive(Parser)]
#[command(bin_name = "cargo xtask fuzz", max_term_width = 120)]
enum Campaign {
    Options(options::Plan),
    #[cfg(target_arch = "x86_64")]
    Faults(faults::FaultArgs),
    Hostile(hostile::HostileArgs),
    Kernels(kernels::KernelArgs),
    /// The program in the virtual machine
    #[command(hide = true)]
    Guest,
}

fn main() -> ExitCode {
    let result = match Campaign::parse() {
        Campaign::Options(plan) => options::run(&plan),
        #[cfg(target_arch = "x86_64")]
        Campaign::Faults(args) => faults::run(&args),
        Campaign::Hostile(args) => hostile::run(&args),
        Campaign::Kernels(args) => kernels::run(&args),
        Campaign::Guest => linux::guest::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferofs-campaigns: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Commands or processes at a time, if the user does not say: one for each processor.
fn jobs(wanted: Option<NonZeroUsize>) -> usize {
    wanted.or_else(|| available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Campaign::command().debug_assert();
        let parse = |words: &[&str]| Campaign::try_parse_from([&["campaigns"], words].concat());
        for (words, seconds) in
            [(&["options"][..], Some(60)), (&["options", "--images", "9"], None)]
        {
            let Ok(Campaign::Options(plan)) = parse(words) else { panic!("{words:?}") };
            assert_eq!(plan.seconds, seconds);
        }
        for (words, random) in [(&["kernels"][..], 200), (&["kernels", "--few"], 0)] {
            let Ok(Campaign::Kernels(args)) = parse(words) else { panic!("{words:?}") };
            assert_eq!(args.random, random);
        }
        assert!(parse(&["faults", "--every", "0"]).is_err());
    }
}

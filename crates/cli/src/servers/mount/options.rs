//! Options of images on servers in `-o`, for lines of fstab(5): `cache_dir=DIR` is `--cache-dir
//! DIR`, `offline` is `--offline`.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Args as _, Command, FromArgMatches as _};

use crate::cmd::mount::args::Args;
use crate::cmd::mount::options::{InvalidOption, split, unquoted};
use crate::servers::args::ServerArgs;

/// Takes the options of images on servers out of the lists of `-o`, and applies them to the other
/// arguments.
///
/// # Errors
/// An option whose value is wrong.
pub(super) fn take(args: &mut Args) -> Result<(), InvalidOption> {
    let mut servers = ServerOptions::new();
    let mut prefetch = None;
    for list in &mut args.options {
        let mut others = Vec::new();
        for option in split(list) {
            let (name, value) =
                option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
            match (name, value) {
                ("prefetch", Some(value)) => prefetch = Some(OsString::from(value).into()),
                (name, value) if servers.take(name, value)? => {}
                _ => others.push(option),
            }
        }
        *list = others.join(",");
    }
    let given = &mut args.memory.servers.prefetch;
    *given = given.take().or(prefetch);
    servers.apply(&mut args.image.servers)
}

/// The options of [`ServerArgs`] that a list of options has.
struct ServerOptions {
    command: Command,
    given: Vec<OsString>,
    names: Vec<String>,
}

impl ServerOptions {
    fn new() -> Self {
        let command = Command::new("mount").no_binary_name(true).disable_help_flag(true);
        let command = ServerArgs::augment_args_for_update(command).mut_args(without_default);
        Self { command, given: Vec::new(), names: Vec::new() }
    }

    /// Takes the option, if it is one of images on servers.
    ///
    /// # Errors
    /// If the option needs a value, or takes none.
    fn take(&mut self, name: &str, value: Option<&str>) -> Result<bool, InvalidOption> {
        let long = match name {
            // mount(8) has an option `user`.
            "user" => return Ok(false),
            "username" => "user".to_owned(),
            name if name.contains('-') => return Ok(false),
            name => name.replace('_', "-"),
        };
        let Some(arg) = self.command.get_arguments().find(|arg| arg.get_long() == Some(&long))
        else {
            return Ok(false);
        };
        let wrong = |problem: &str| Err(InvalidOption(name.to_owned(), problem.to_owned()));
        self.given.push(match (takes_value(arg), value) {
            (true, Some(value)) => format!("--{long}={}", unquoted(value)).into(),
            (true, None) => return wrong("needs a value"),
            (false, None) => format!("--{long}").into(),
            (false, Some(_)) => return wrong("takes no value"),
        });
        self.names.push(name.to_owned());
        Ok(true)
    }

    /// Adds the options to those of the command line.
    ///
    /// # Errors
    /// If a value is wrong, or options do not fit together.
    fn apply(self, args: &mut ServerArgs) -> Result<(), InvalidOption> {
        if self.given.is_empty() {
            return Ok(());
        }
        let matches = self.command.try_get_matches_from(self.given);
        matches.and_then(|matches| args.update_from_arg_matches(&matches)).map_err(|error| {
            let text = error.to_string();
            let reason =
                text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            InvalidOption(self.names.join(","), reason)
        })
    }
}

/// The option without a value that it has when it is not given: that would replace the value of the
/// command line.
fn without_default(arg: Arg) -> Arg {
    let arg = arg.env(Resettable::Reset).default_value(Resettable::Reset);
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        arg.action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
    } else {
        arg
    }
}

/// Whether the option needs a value.
fn takes_value(arg: &Arg) -> bool {
    arg.get_num_args().is_none_or(|range| range.min_values() > 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::servers::mount::prefetch::Prefetch;

    fn parsed(list: &[(&str, Option<&str>)]) -> Result<ServerArgs, String> {
        let mut options = ServerOptions::new();
        for (name, value) in list {
            assert!(options.take(name, *value).map_err(|error| error.to_string())?, "{name}");
        }
        let mut args = ServerArgs {
            offline: true,
            connections: std::num::NonZero::new(3),
            ..ServerArgs::default()
        };
        options.apply(&mut args).map_err(|error| error.to_string()).map(|()| args)
    }

    #[test]
    fn options_are_those_of_the_command_line() {
        let args = parsed(&[
            ("cache_dir", Some("/c")),
            ("cache_size", Some("1G")),
            ("on_error", Some("\"wait=5\"")),
            ("insecure_no_verify", None),
            ("username", Some("me")),
            ("password_file", Some("/p")),
            ("cacert", Some("/ca")),
        ])
        .unwrap();
        assert_eq!(args.cache.cache_dir, Some("/c".into()));
        assert_eq!(
            (args.cache.cache_size, args.patience()),
            (Some(1 << 30), Duration::from_secs(5))
        );
        assert!(args.insecure_no_verify && args.remote.files().count() == 2);
        // What the list does not name stays.
        assert!(args.offline && args.connections == std::num::NonZero::new(3));
    }

    #[test]
    fn a_line_of_fstab_names_an_image_on_a_server() {
        let taken = |list: &str| {
            let command = Args::augment_args(Command::new("mount").no_binary_name(true));
            let mut args =
                Args::from_arg_matches(&command.get_matches_from(["i", "d", "-o", list])).unwrap();
            take(&mut args).map(|()| args).map_err(|error| error.to_string())
        };
        let args =
            taken("_netdev,cache_dir=/c,offline,prefetch=all,token_file=/t,user=me").unwrap();
        assert_eq!(args.options, ["_netdev,user=me"]);
        assert_eq!(args.image.servers.cache.cache_dir, Some("/c".into()));
        assert!(args.image.servers.offline && args.image.servers.remote.files().count() == 1);
        assert_eq!(args.memory.servers.prefetch, Some(Prefetch::All));
        let profile = taken("prefetch=./all").unwrap().memory.servers.prefetch;
        assert_eq!(profile, Some(Prefetch::Profile("./all".into())));
        let error = taken("on_error=x").map(drop).unwrap_err();
        assert!(error.starts_with("-o on_error: "), "{error}");
    }

    #[test]
    fn wrong_values_and_combinations_are_one_line() {
        for (list, reason) in [
            (&[("on_error", Some("retry"))][..], "neither eio nor wait=SECONDS"),
            (&[("cache_dir", None)], "needs a value"),
            (&[("offline", Some("1"))], "takes no value"),
            (&[("username", Some("me")), ("token_file", Some("/t"))], "cannot be used with"),
            (&[("s3_bucket_in", Some("x"))], "invalid value 'x'"),
        ] {
            let error = parsed(list).unwrap_err();
            assert!(error.contains(reason) && error.lines().count() == 1, "{error}");
        }
    }

    #[test]
    fn other_options_are_not_taken() {
        let mut options = ServerOptions::new();
        for name in ["user", "offset", "cache-dir", "ro", "help"] {
            assert_eq!(options.take(name, None), Ok(false), "{name}");
        }
    }
}

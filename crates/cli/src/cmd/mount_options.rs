//! What `-o` says, as mount(8), fstab(5) and erofsfuse spell it.

use std::path::PathBuf;

use super::image::ImageArgs;

/// Options that mean something to mount(8) alone, or that hold anyway.
const IGNORED: [&str; 15] = [
    "ro",
    "rw",
    "loop",
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "defaults",
    "default_permissions",
    // The keeper sees to it.
    "auto_unmount",
];

/// The options, sorted by whom they concern.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sorted {
    /// Let other users in.
    pub(crate) allow_other: bool,
    /// Keep the rights that serving does not need.
    pub(crate) no_sandbox: bool,
    /// Cache little.
    pub(crate) low_memory: bool,
    /// Where messages go.
    pub(crate) log_file: Option<PathBuf>,
    /// Where the daemon's number goes.
    pub(crate) pid_file: Option<PathBuf>,
    /// For the kernel or fusermount3.
    pub(crate) passed: Vec<String>,
}

/// Sorts `options`; `offset=` and `device=` go to the image.
///
/// # Errors
/// The option whose value is no number.
pub(crate) fn sort(options: &[String], image: &mut ImageArgs) -> Result<Sorted, InvalidOption> {
    let mut sorted = Sorted::default();
    for option in options {
        let (name, value) = option.split_once('=').map_or((option.as_str(), None), |(n, v)| (n, Some(v)));
        match (name, value) {
            ("offset" | "fsoffset", Some(value)) => {
                image.offset = value.parse().map_err(|_| InvalidOption(option.clone()))?;
            }
            ("device", Some(value)) => image.devices.push(PathBuf::from(value)),
            ("allow_other", None) => sorted.allow_other = true,
            ("no_sandbox", None) => sorted.no_sandbox = true,
            ("low_memory", None) => sorted.low_memory = true,
            ("log_file", Some(value)) => sorted.log_file = Some(value.into()),
            ("pid_file", Some(value)) => sorted.pid_file = Some(value.into()),
            ("", None) | ("comment", Some(_)) => {}
            // Options of user space, by convention: x-systemd.automount and the like.
            (name, _) if name.starts_with("x-") || name.starts_with("X-") || IGNORED.contains(&name) => {}
            _ => sorted.passed.push(option.clone()),
        }
    }
    Ok(sorted)
}

/// An option that makes no sense.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidOption(String);

impl std::fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "-o {}: not a number of bytes", self.0)
    }
}

impl std::error::Error for InvalidOption {}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(text: &str) -> (Result<Sorted, InvalidOption>, ImageArgs) {
        let mut image = ImageArgs { path: "i".into(), offset: 0, devices: Vec::new(), work_limit: 1 };
        let options: Vec<String> = text.split(',').map(str::to_owned).collect();
        (sort(&options, &mut image), image)
    }

    #[test]
    fn options_go_where_they_belong() {
        let (options, image) = sorted(
            "defaults,ro,offset=512,device=a,x-systemd.automount,nodev,device=b,allow_other,pid_file=p",
        );
        assert_eq!((image.offset, image.devices), (512, vec!["a".into(), "b".into()]));
        let passed = vec!["nodev".to_owned()];
        assert_eq!(
            options,
            Ok(Sorted { allow_other: true, pid_file: Some("p".into()), passed, ..Sorted::default() })
        );
    }

    #[test]
    fn a_bad_offset_is_named() {
        assert_eq!(sorted("offset=1k").0, Err(InvalidOption("offset=1k".into())));
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(sorted("").0, Ok(Sorted::default()));
    }
}

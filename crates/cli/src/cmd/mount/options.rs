//! What `-o` says, as mount(8), fstab(5) and erofsfuse spell it.

use std::path::PathBuf;

use crate::args::byte_size;
use crate::args::image::ImageArgs;

/// Options that mean something to mount(8) alone, or that hold anyway.
const IGNORED: [&str; 11] = [
    "ro",
    "rw",
    "auto",
    "noauto",
    "nouser",
    "nogroup",
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
    /// Change what is mounted instead of mounting.
    pub(crate) remount: bool,
    /// Use a loop device even where the kernel reads files itself.
    pub(crate) force_loop: bool,
    /// Bytes of the file that belong to the image.
    pub(crate) size_limit: Option<u64>,
    /// For the kernel or fusermount3.
    pub(crate) passed: Vec<String>,
}

/// Sorts `options`, each a list separated by commas; `offset=` and `device=` go to the image.
///
/// # Errors
/// The option whose value is no number.
pub(crate) fn sort(options: &[String], image: &mut ImageArgs) -> Result<Sorted, InvalidOption> {
    let mut sorted = Sorted::default();
    for option in options.iter().flat_map(|list| split(list)) {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        let bytes = |value| byte_size::parse_as_mount(value).ok_or_else(|| InvalidOption(option.to_owned()));
        let restrict = |sorted: &mut Sorted, flags: &[&str]| {
            sorted.passed.extend(flags.iter().map(|flag| (*flag).to_owned()));
        };
        match (name, value) {
            ("offset" | "fsoffset", Some(value)) => image.offset = bytes(value)?,
            ("sizelimit", Some(value)) => sorted.size_limit = Some(bytes(value)?).filter(|limit| *limit != 0),
            ("device", Some(value)) => image.devices.push(PathBuf::from(value)),
            // Any free loop device serves as well as one that is named.
            ("loop", _) => sorted.force_loop = true,
            ("remount", None) => sorted.remount = true,
            ("allow_other", None) => sorted.allow_other = true,
            ("no_sandbox", None) => sorted.no_sandbox = true,
            ("low_memory", None) => sorted.low_memory = true,
            ("log_file", Some(value)) => sorted.log_file = Some(value.into()),
            ("pid_file", Some(value)) => sorted.pid_file = Some(value.into()),
            // As mount(8): who lets users mount trusts no file in the image.
            ("user" | "users", _) => restrict(&mut sorted, &["nosuid", "nodev", "noexec"]),
            ("owner" | "group", None) => restrict(&mut sorted, &["nosuid", "nodev"]),
            ("", None) | ("comment" | "uhelper" | "helper", Some(_)) => {}
            // Options of user space, by convention: x-systemd.automount and the like.
            (name, _) if name.starts_with("x-") || name.starts_with("X-") || IGNORED.contains(&name) => {}
            _ => sorted.passed.push(option.to_owned()),
        }
    }
    Ok(sorted)
}

/// The parts of a list separated by commas; a comma between quotation marks separates nothing, as in labels of SELinux:
/// `context="system_u:object_r:tmp_t:s0:c1,c2"`.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    list.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
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
        (sort(&[text.to_owned()], &mut image), image)
    }

    #[test]
    fn options_go_where_they_belong() {
        let (options, image) = sorted(
            "defaults,ro,,offset=512,device=a,x-systemd.automount,nodev,device=b,allow_other,pid_file=p,nofail,_netdev",
        );
        assert_eq!((image.offset, image.devices), (512, vec!["a".into(), "b".into()]));
        let passed = vec!["nodev".to_owned()];
        assert_eq!(
            options,
            Ok(Sorted { allow_other: true, pid_file: Some("p".into()), passed, ..Sorted::default() })
        );
    }

    #[test]
    fn loops_take_a_part_of_a_file() {
        let (options, image) = sorted("loop=/dev/loop7,offset=1MiB,sizelimit=2KB");
        assert_eq!(image.offset, 1 << 20);
        assert_eq!(options, Ok(Sorted { force_loop: true, size_limit: Some(2000), ..Sorted::default() }));
        assert_eq!(sorted("sizelimit=0").0, Ok(Sorted::default()));
    }

    #[test]
    fn users_mounts_are_restricted_unless_told_otherwise() {
        let passed = ["nosuid", "nodev", "noexec", "exec"].map(str::to_owned).to_vec();
        assert_eq!(sorted("user=joe,exec").0, Ok(Sorted { passed, ..Sorted::default() }));
    }

    #[test]
    fn a_comma_in_quotation_marks_ends_no_option() {
        let passed = ["context=\"s0:c1,c2\"", "noexec"].map(str::to_owned).to_vec();
        assert_eq!(sorted("context=\"s0:c1,c2\",noexec").0, Ok(Sorted { passed, ..Sorted::default() }));
    }

    #[test]
    fn a_bad_offset_is_named() {
        for text in ["offset=1k2", "offset=", "offset=-1", "offset=99999999999999T", "offset=K"] {
            assert_eq!(sorted(text).0, Err(InvalidOption(text.into())));
        }
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(sorted("").0, Ok(Sorted::default()));
    }
}

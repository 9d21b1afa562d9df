//! `-o remount`: changes the flags of a mount, and options of the kernel's driver. Everything else
//! stays as it was when the image was mounted.

use std::path::{Path, PathBuf};

use ferofs::escape::Escaped;
use ferofs_fuse::Access;

use crate::cmd::mount::args::Args;
use crate::cmd::mount::kernel;
use crate::cmd::mount::kernel::flags::Flags;
use crate::cmd::mount::mount_table::{MountEntry, mount_at};
use crate::cmd::mount::options::SortedOptions;
use crate::cmd::mount::umount::{OWN_TYPES, absolute};
use crate::exit::{Concerning, Failure, Outcome};
use crate::print::output::message;

/// Changes the mount on the directory of `args`. Flags that no option names stay.
pub(crate) fn remount(args: &Args, options: &SortedOptions) -> Outcome {
    let about = |reason: String| Failure::about(&args.dir, reason);
    let dir = absolute(&args.dir).concerning(&args.dir)?;
    let mount = mount_at(&dir).concerning(&args.dir)?;
    let mount = mount.ok_or_else(|| about("not a mount point".into()))?;
    let own = options.subtype.as_ref().map(|name| format!("fuse.{name}"));
    if !OWN_TYPES.contains(&mount.kind.as_str()) && own.as_ref() != Some(&mount.kind) {
        let kind = Escaped(mount.kind.as_bytes());
        let reason =
            format!("a mount of type {kind}, which ferofs has not made; mount(8) can change it");
        return Err(about(reason));
    }
    if is_another(&args.image.path, &args.dir, &mount.source) {
        let (image, source) = (Escaped::path(&args.image.path), Escaped::path(&mount.source));
        let reason = format!(
            "{source} is mounted there, and a remount cannot mount {image}: unmount it first"
        );
        return Err(about(reason));
    }
    let (flags, others) = Flags::of_mount(&mount.flags).changed(&options.passed);
    let is_fuse = mount.kind.starts_with("fuse.");
    let mut fixed = fixed(args, options, &mount);
    if is_fuse {
        // The kernel ignores them.
        fixed.extend(
            others.iter().filter(|option| !mount.has(option)).map(|option| format!("-o {option}")),
        );
    }
    if !fixed.is_empty() {
        let reason =
            "a remount cannot change this: unmount the image, and mount it with these options";
        let reason = format!("{}: {reason}", fixed.join(", "));
        if !args.helper.is_helper {
            return Err(about(reason));
        }
        // mount(8) also gives the options of the line in fstab(5), which the mount has already.
        message!("{}: {reason}, unless it has them", Escaped::path(&args.dir));
    }
    let options =
        if is_fuse || others.is_empty() { Vec::new() } else { [mount.kept(), others].concat() };
    kernel::remount(&dir, flags, &options).concerning(&args.dir)?;
    Ok(0)
}

impl MountEntry {
    /// Whether the file system has this option.
    fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|own| own == option)
    }

    /// The options of EROFS in the mount table, which the driver would reset if a remount did not
    /// name them.
    fn kept(&self) -> Vec<&str> {
        const NAMES: [&str; 7] =
            ["acl", "cache_strategy", "dax", "directio", "noacl", "nouser_xattr", "user_xattr"];
        let name =
            |option: &str| option.split('=').next().is_some_and(|name| NAMES.contains(&name));
        self.options.split(',').filter(|option| name(option)).collect()
    }
}

/// The given options that only mounting can set.
fn fixed(args: &Args, options: &SortedOptions, mount: &MountEntry) -> Vec<String> {
    let (image, seal) = (&args.image, &args.image.seal);
    let is_fuse = mount.kind.starts_with("fuse.");
    let given = [
        (args.fuse && !is_fuse, "--fuse"),
        (args.kernel && is_fuse, "--kernel"),
        (args.foreground, "--foreground"),
        (seal.root().is_some(), "--roothash"),
        (seal.hash_file.is_some(), "--hash-file"),
        (seal.hash_offset.is_some(), "--hash-offset"),
        (image.offset != 0 && !mount.options.contains("fsoffset="), "--offset"),
        (!image.devices.is_empty(), "--device"),
        (!args.patches.is_empty(), "--patch"),
        (args.memory.record_profile().is_some(), "--record-profile"),
        (args.memory.pinned_profile().is_some(), "--pin"),
        (options.size_limit.is_some(), "-o sizelimit"),
        (options.access == Access::All && !mount.has("allow_other"), "-o allow_other"),
    ];
    let given = given.into_iter().filter_map(|(is_given, name)| is_given.then_some(name));
    let given = given.chain(args.only_for_fuse(options));
    #[cfg(feature = "remote")]
    let given = given
        .chain(image.servers.given())
        .chain(args.memory.servers.prefetch.is_some().then_some("--prefetch"));
    given.map(str::to_owned).collect()
}

/// Whether the source of a mount is certainly another image than `image`, the argument. The
/// directory of the mount may be given instead of the image. A device, and a name of `-o fsname`,
/// tell nothing.
fn is_another(image: &Path, dir: &Path, source: &Path) -> bool {
    if image == source || image == dir {
        return false;
    }
    let known = |path: &Path| std::fs::canonicalize(path).ok();
    let (given, mounted) =
        (known(image), known(&backing_file(source).unwrap_or_else(|| source.to_owned())));
    if given.is_some() && (given == known(dir) || given == mounted) {
        return false;
    }
    let is_address = source.to_string_lossy().contains("://");
    is_address || mounted.is_some_and(|mounted| mounted.is_file())
}

/// The file of a loop device.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let name = device.strip_prefix("/dev").ok()?;
    let file = Path::new("/sys/block").join(name).join("loop/backing_file");
    Some(PathBuf::from(std::fs::read_to_string(file).ok()?.trim_end_matches('\n')))
}

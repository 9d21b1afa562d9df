//! `ferofs extract --metadata`: writes the metadata of all files to a file, because a file system
//! or a user without root cannot always store it.
//!
//! The two forms of Android are those that `mkfs.erofs --fs-config-file` and `--file-contexts`
//! read. An fs_config file has a line with path, owner and mode for each file; a file_contexts file
//! has a line with a regular expression and an SELinux label. JSON has all metadata.

use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ferofs::extract::{Entry, OnError, Options, inventory};
use ferofs::inspect::type_name;
use ferofs::read::{FileType, Hex, Image, Inode, Place};
use ferofs::{Error, IoError, NewFile};
use serde_json::{Value, json};

use crate::args::overwrite::OutputKind;
use crate::exit::{About, FAILURE, Failure, OUTPUT_FAILURE, Outcome};
use crate::print::output::{json_text, message};
use ferofs::escape::Escaped;

const LABEL: &[u8] = b"security.selinux";
const CAPABILITIES: &[u8] = b"security.capability";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    FsConfig,
    FileContexts,
    Json,
}

/// Writes the metadata below `from` to `file`. The name of `file` selects the form.
pub(super) fn write(
    image: &Image,
    from: &Inode,
    file: &Path,
    mount_point: &Path,
    options: &Options,
    print_error: OnError<'_>,
) -> Outcome {
    let form = Form::of(file);
    let to_stdout = file == Path::new("-");
    let code = if to_stdout { OUTPUT_FAILURE } else { FAILURE };
    let failed = |source: io::Error| Failure::about(file, source).with_code(code);
    let mut new = (!to_stdout).then(|| NewFile::create(file)).transpose().without_subject()?;
    let mut stdout = io::stdout();
    let mut out = BufWriter::new(new.as_mut().map_or(&mut stdout as &mut dyn Write, |new| new));
    let (mut left_out, mut first) = (0_u64, true);
    let mut visit = |entry: Entry<'_>| {
        let line = match form {
            Form::FsConfig => fs_config(&entry, mount_point),
            Form::FileContexts => file_contexts(&entry, mount_point),
            Form::Json => {
                let start = if std::mem::take(&mut first) { "[\n" } else { ",\n" };
                Some(format!("{start}{}", json_text(&to_json(&entry))).into_bytes())
            }
        };
        let has_label = || entry.xattrs.iter().any(|xattr| xattr.name == LABEL);
        left_out += u64::from(line.is_none() && (form != Form::FileContexts || has_label()));
        out.write_all(&line.unwrap_or_default()).map_err(|e| Error::io("write", file, e))
    };
    inventory(image, from, options, print_error, &mut visit).map_err(|error| {
        let is_output =
            matches!(&error, Error::Io(IoError { path: Some(path), .. }) if path == file);
        Failure::without_subject(error).with_code(if is_output { code } else { FAILURE })
    })?;
    if form == Form::Json {
        out.write_all(if first { b"[]\n" } else { b"\n]\n" }).map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    drop(out);
    new.map_or(Ok(()), NewFile::finish).without_subject()?;
    if left_out > 0 {
        message!(
            "{}: {left_out} names left out: the format allows no white space in names",
            Escaped::path(file)
        );
    }
    let failures = options.progress.failures.get();
    Ok(if left_out == 0 && failures == 0 { 0 } else { FAILURE })
}

/// The kind of `file`, as its name selects it.
pub(super) fn kind(file: &Path) -> OutputKind {
    match Form::of(file) {
        Form::FsConfig => OutputKind::FsConfig,
        Form::FileContexts => OutputKind::FileContexts,
        Form::Json => OutputKind::Json,
    }
}

impl Form {
    fn of(file: &Path) -> Self {
        // The names in builds of Android: fs_config, system_filesystem_config.txt,
        // plat_file_contexts.
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        if name.ends_with("fs_config") || name.ends_with("filesystem_config") {
            Self::FsConfig
        } else if name.ends_with("file_contexts") {
            Self::FileContexts
        } else {
            Self::Json
        }
    }
}

/// A line `PATH UID GID MODE [capabilities=0x...]`. The path has no leading slash; the path of the
/// root is `/`. `None` if the path contains white space.
fn fs_config(entry: &Entry<'_>, mount_point: &Path) -> Option<Vec<u8>> {
    let path = mounted(entry.path, mount_point);
    let mut line = if path.is_empty() { b"/".to_vec() } else { writable(&path)?.to_vec() };
    let disk = entry.inode.on_disk();
    write!(line, " {} {} {:04o}", disk.uid, disk.gid, disk.permissions).ok()?;
    if let Some(bits) = entry
        .xattrs
        .iter()
        .find(|xattr| xattr.name == CAPABILITIES)
        .and_then(|x| permitted(&x.value))
    {
        write!(line, " capabilities={bits:#x}").ok()?;
    }
    line.push(b'\n');
    Some(line)
}

/// The permitted capabilities in a `security.capability` attribute. Source: Linux, `struct
/// vfs_cap_data`.
fn permitted(value: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u32::from_le_bytes(value.get(at..at + 4)?.try_into().ok()?));
    Some(u64::from(word(4)?) | u64::from(word(12).unwrap_or(0)) << 32)
}

/// A line `REGEX LABEL`. The regular expression matches only this path. `None` if the file has no
/// label, or if the path contains white space.
fn file_contexts(entry: &Entry<'_>, mount_point: &Path) -> Option<Vec<u8>> {
    let label = &entry.xattrs.iter().find(|xattr| xattr.name == LABEL)?.value;
    let label = label.strip_suffix(b"\0").unwrap_or(label);
    let path = mounted(entry.path, mount_point);
    let mut line = vec![b'/'];
    for byte in if path.is_empty() { &[][..] } else { writable(&path)? } {
        if b".^$?*+|[](){}\\".contains(byte) {
            line.push(b'\\');
        }
        line.push(*byte);
    }
    line.push(b' ');
    line.extend(writable(label)?);
    line.push(b'\n');
    Some(line)
}

/// The path below the mount point, without a leading slash.
fn mounted(path: &Path, mount_point: &Path) -> Vec<u8> {
    let mount_point = mount_point.strip_prefix("/").unwrap_or(mount_point);
    let path =
        if path.as_os_str().is_empty() { mount_point.to_owned() } else { mount_point.join(path) };
    path.as_os_str().as_bytes().to_vec()
}

/// `word`, if a line whose fields are separated by white space can contain it.
fn writable(word: &[u8]) -> Option<&[u8]> {
    (!word.is_empty() && !word.iter().any(u8::is_ascii_whitespace)).then_some(word)
}

fn to_json(entry: &Entry<'_>) -> Value {
    let disk = entry.inode.on_disk();
    let mut value = json!({
        "path": text(&[b"/", entry.path.as_os_str().as_bytes()].concat()),
        "type": type_name(disk.file_type),
        "mode": format!("{:04o}", disk.permissions),
        "uid": disk.uid,
        "gid": disk.gid,
        "mtime": { "secs": disk.mtime.secs, "nanos": disk.mtime.nanos },
    });
    if disk.file_type == FileType::Regular {
        value["size"] = disk.size.into();
    }
    if let Place::Device(device) = disk.place {
        value["device"] = json!({ "major": device.major, "minor": device.minor });
    }
    if let Some(first) = &entry.first {
        value["link"] = text(&[b"/", first.as_os_str().as_bytes()].concat());
    }
    if !entry.xattrs.is_empty() {
        let pair = |xattr: &ferofs::read::Xattr| json!({ "name": text(&xattr.name), "value": Hex(&xattr.value).to_string() });
        value["xattrs"] = entry.xattrs.iter().map(pair).collect();
    }
    value
}

/// UTF-8 as a string; other bytes as an object with their hexadecimal digits.
fn text(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes)
        .map_or_else(|_| json!({ "hex": Hex(bytes).to_string() }), Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_selects_the_form() {
        for (name, form) in [
            ("out/vendor_fs_config", Form::FsConfig),
            ("system_filesystem_config.txt", Form::FsConfig),
            ("file_contexts", Form::FileContexts),
            ("plat_file_contexts.txt", Form::FileContexts),
            ("meta.json", Form::Json),
            ("anything", Form::Json),
        ] {
            assert_eq!(Form::of(Path::new(name)), form, "{name}");
        }
    }

    #[test]
    fn capabilities_become_one_number() {
        let value = [0x01, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(permitted(&value), Some(0x1_0000_2000));
        assert_eq!(permitted(&value[..6]), None);
    }
}

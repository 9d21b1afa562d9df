//! What the options change in every tree, whatever its source: Android's owners and modes, SELinux labels,
//! digests. Stands between the source's reader and [`crate::tree::inode_sizes`].

use std::path::PathBuf;

use ferofs_format::inode::Timestamp;
use ferofs_format::xattr::LongPrefix;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::Options;
use crate::options::fs_config::{FsConfig, capability_xattr};
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::origin::Origin;
use crate::tree::{Kind, NodeId, Tree};
use crate::{Error, Result};

/// Bytes read at once for a digest.
const PIECE: usize = 1 << 20;

/// Changes `tree` as `options` say.
pub(crate) fn amend(tree: &mut Tree, options: &Options, contents: &Contents) -> Result<()> {
    if let Some(newest) = options.attributes.newest_time {
        let newest = Timestamp { secs: newest, nanos: 0 };
        for node in &mut tree.nodes {
            node.mtime = node.mtime.min(newest);
        }
    }
    let target = &options.attributes.target;
    if target.labels.is_some() || target.fs_config.is_some() {
        for id in tree.ids() {
            options.run.check_cancelled()?;
            let path = target_path(&target.mount_point, &tree.path_bytes(id));
            if let Some(config) = &target.fs_config {
                configure(tree, id, config, &path)?;
            }
            if let Some(labels) = &target.labels {
                let absolute = [b"/".as_slice(), &path].concat();
                if let Some(label) = labels.lookup(&absolute, tree.node(id).kind.file_type()) {
                    set_xattr(tree, id, b"security.selinux", label, &absolute)?;
                }
            }
        }
    }
    if let Some(name) = &options.xattrs.digest {
        digest(tree, name, options, contents)?;
    }
    Ok(())
}

/// The path of a file on the target, without a leading slash.
fn target_path(mount_point: &[u8], path: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = [mount_point, path].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(&b'/')
}

fn configure(tree: &mut Tree, id: NodeId, config: &FsConfig, path: &[u8]) -> Result<()> {
    let own = if id == NodeId::ROOT {
        config.lookup(path).or_else(|| config.lookup(b""))
    } else {
        config.lookup(path)
    };
    let Some(entry) = own else {
        return Err(Error::NotConfigured(PathBuf::from(crate::paths::as_path(path))));
    };
    let node = &mut tree.nodes[id.index()];
    (node.uid, node.gid, node.permissions) = (entry.uid, entry.gid, entry.permissions);
    if entry.capabilities != 0 {
        set_xattr(tree, id, b"security.capability", &capability_xattr(entry.capabilities), path)?;
    }
    Ok(())
}

fn set_xattr(tree: &mut Tree, id: NodeId, name: &[u8], value: &[u8], path: &[u8]) -> Result<()> {
    let old = tree.node(id).xattrs;
    let new = tree.xattrs.replace(old, name, value).map_err(|e| e.of(crate::paths::as_path(path)))?;
    tree.nodes[id.index()].xattrs = new;
    Ok(())
}

/// Gives each regular file the digest of its content. Large files cannot be hashed in the segments in which
/// they are encoded, nor can an inode get its length later: so content is read once more, ahead.
fn digest(tree: &mut Tree, name: &LongPrefix, options: &Options, contents: &Contents) -> Result<()> {
    let files: Vec<NodeId> =
        tree.ids().filter(|id| matches!(tree.node(*id).kind, Kind::Regular { .. })).collect();
    let shown = &*tree;
    let digests = options.run.parallel(
        files.len(),
        || Reader::new(contents, shown),
        |reader, number| match hash(reader, shown, files[number], options) {
            Err(error) if options.source.skip_unreadable && error.is_unreadable() => Ok(Err(error)),
            result => result.map(Ok),
        },
    )?;
    for (id, digest) in files.into_iter().zip(digests) {
        match digest {
            Ok(digest) => {
                let value = [b"sha256:".as_slice(), &digest].concat();
                let set = tree.xattrs.add_digest(tree.node(id).xattrs, name, &value);
                tree.nodes[id.index()].xattrs = set.map_err(|e| e.of(contents.path(tree, id)))?;
            }
            // A later read may succeed, but a file without a digest is not what was asked for: the data stage leaves it out.
            Err(error) => tree.nodes[id.index()].origin = Origin::Unreadable(errno(&error)),
        }
    }
    Ok(())
}

/// The reason why a file could not be read, as far as the system has a number for it.
fn errno(error: &Error) -> Errno {
    let number = match error {
        Error::Io { source, .. } => source.raw_os_error(),
        _ => None,
    };
    number.map_or(Errno::IO, Errno::from_raw_os_error)
}

fn hash(reader: &mut Reader<'_>, tree: &Tree, id: NodeId, options: &Options) -> Result<[u8; 32]> {
    let size = tree.node(id).size;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; size.min(PIECE as u64) as usize];
    let mut at = 0;
    while at < size {
        options.run.check_cancelled()?;
        let len = (size - at).min(PIECE as u64) as usize;
        reader.read(id, at, &mut buffer[..len])?;
        hasher.update(&buffer[..len]);
        at += len as u64;
    }
    Ok(hasher.finalize().into())
}

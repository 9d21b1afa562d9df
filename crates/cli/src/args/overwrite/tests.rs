use super::*;

fn refusal(content: &[u8], kind: OutputKind) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, content).unwrap();
    OverwriteArgs { force: true }.check(&path, kind).unwrap();
    let checked = OverwriteArgs { force: false }.check(&path, kind);
    checked.err().map(|failure| failure.reason().to_string())
}

#[test]
fn files_of_the_same_kind_are_replaced() {
    let mut image = vec![0; 8192];
    image[1024..1028].copy_from_slice(&EROFS);
    let far = [&b"program"[..], &[0; 4089], &image].concat();
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    let kinds: [(&[u8], OutputKind); 11] = [
        (b".ie \\n(.g .ds Aq \\(aq\n", OutputKind::ManPage),
        (&image, OutputKind::Image { offset: 0 }),
        (&far, OutputKind::Image { offset: 4096 }),
        (b"ferofspt...", OutputKind::Patch),
        (&tar, OutputKind::Tar),
        (b"\n<!DOCTYPE html>\n", OutputKind::Html),
        (b"verity\0\0\x01", OutputKind::HashTree),
        (b"00ff\n", OutputKind::RootHash),
        (&[0x30, 0x82], OutputKind::Signature),
        (b"[\n{}]", OutputKind::Json),
        (b"/ 0 0 0755\na 1 2 0644\n", OutputKind::FsConfig),
    ];
    for (content, own) in kinds {
        assert_eq!(refusal(content, own), None, "{own:?}");
        assert_eq!(refusal(b"", own), None, "empty, {own:?}");
        assert!(refusal(&b"The thesis: of words.\n".repeat(1000), own).is_some(), "text, {own:?}");
        // An image that starts after the file's end replaces nothing.
        let is_after = |kind: &OutputKind| matches!(kind, OutputKind::Image { offset } if content.len() as u64 <= *offset);
        let others =
            kinds.iter().filter(|(_, other)| other.name() != own.name() && !is_after(other));
        for (_, other) in others {
            // containerd's file of a root hash is JSON.
            let is_taken = matches!((own, other), (OutputKind::Json, OutputKind::RootHash));
            assert_eq!(refusal(content, *other).is_none(), is_taken, "{own:?} as {other:?}");
        }
    }
    assert!(refusal(b"x", OutputKind::Chunks).is_some());
    // The image would start after all that is there.
    assert_eq!(refusal(b"text", OutputKind::Image { offset: 4096 }), None);
}

#[test]
fn planted_links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (link, target) = (dir.path().join("link"), dir.path().join("target"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    for (mode, is_followed) in [(0o777, false), (0o755, true)] {
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
        let opened = open_without_waiting(File::options().append(true).create(true), &link);
        assert_eq!((opened.is_ok(), target.exists()), (is_followed, is_followed), "{mode:o}");
    }
    assert_eq!(std::fs::metadata(target).unwrap().mode() & 0o022, 0);
}

#[test]
fn a_file_is_not_called_as_standard_output_by_mistake() {
    let check = |name: &str, kind| OverwriteArgs { force: true }.check(Path::new(name), kind);
    check("-", OutputKind::Tar).unwrap();
    check("./-", OutputKind::RootHash).unwrap();
    let error = check("-", OutputKind::RootHash).unwrap_err().to_string();
    assert!(error.starts_with("-: this option writes to a file"), "{error}");
}

#[test]
fn the_message_names_what_would_be_lost() {
    let mut ext4 = vec![0; 4096];
    ext4[1080..1082].copy_from_slice(b"\x53\xef");
    let reason = refusal(&ext4, OutputKind::Image { offset: 0 }).unwrap();
    assert!(
        reason.contains("is an ext2, ext3 or ext4 file system, not an EROFS image"),
        "{reason}"
    );
    let reason = refusal(b"text", OutputKind::Patch).unwrap();
    assert_eq!(reason, "exists and is a file of another kind, not a patch: --force replaces it");
}

use super::*;

fn sorted(text: &str) -> (Result<SortedOptions, InvalidOption>, ImageArgs) {
    let mut image = ImageArgs::of("i");
    (sort(&[text.to_owned()], &mut image), image)
}

#[test]
fn options_are_sorted_by_the_program_that_handles_them() {
    let (options, image) = sorted(
        "defaults,ro,,offset=512,device=a,x-systemd.automount,nodev,device=b,allow_other,pid_file=p,nofail,_netdev",
    );
    assert_eq!((image.offset, image.devices), (512, vec!["a".into(), "b".into()]));
    let passed = vec!["nodev".to_owned()];
    assert_eq!(
        options,
        Ok(SortedOptions {
            access: Access::All,
            pid_file: Some("p".into()),
            passed,
            ..SortedOptions::default()
        })
    );
}

#[test]
fn a_loop_device_can_show_a_part_of_a_file() {
    let (options, image) = sorted("loop=/dev/loop7,offset=1MiB,sizelimit=2KB");
    assert_eq!(image.offset, 1 << 20);
    assert_eq!(
        options,
        Ok(SortedOptions { force_loop: true, size_limit: Some(2000), ..SortedOptions::default() })
    );
    assert_eq!(sorted("sizelimit=0").0, Ok(SortedOptions::default()));
}

#[test]
fn the_options_of_libfuse_are_understood() {
    let list =
        "fsname=\"a,b\",subtype=my-fs,allow_root,clone_fd,max_threads=3,max_idle_threads=2,debug";
    let wanted = SortedOptions {
        fsname: Some("a,b".into()),
        subtype: Some("my-fs".into()),
        access: Access::OwnerAndRoot,
        max_threads: NonZeroUsize::new(3),
        debug: true,
        ..SortedOptions::default()
    };
    assert_eq!(sorted(list).0, Ok(wanted));
    for wrong in ["max_threads=0", "max_idle_threads=-1", "subtype=", "subtype=a/b", "subtype=a b"]
    {
        let error = sorted(wrong).0.unwrap_err().to_string();
        assert!(error.starts_with(&format!("-o {wrong}: ")), "{error}");
    }
}

#[test]
fn mounts_by_users_are_restricted_unless_later_options_allow_more() {
    let passed = ["nosuid", "nodev", "noexec", "exec"].map(str::to_owned).to_vec();
    assert_eq!(sorted("user=joe,exec").0, Ok(SortedOptions { passed, ..SortedOptions::default() }));
}

#[test]
fn a_comma_in_quotation_marks_does_not_separate_options() {
    let passed = ["context=\"s0:c1,c2\"", "noexec"].map(str::to_owned).to_vec();
    assert_eq!(
        sorted("context=\"s0:c1,c2\",noexec").0,
        Ok(SortedOptions { passed, ..SortedOptions::default() })
    );
}

#[test]
fn the_error_shows_the_wrong_offset() {
    for text in ["offset=1k2", "offset=", "offset=-1", "offset=99999999999999T", "offset=K"] {
        assert_eq!(sorted(text).0, Err(InvalidOption(text.into(), "not a number of bytes".into())));
    }
}

#[test]
fn the_options_of_mount_name_the_seal() {
    let root = "ab".repeat(32);
    let (options, image) =
        sorted(&format!("verity.roothash={root},verity.hashdevice=/tree,verity.hashoffset=4K"));
    assert_eq!(options, Ok(SortedOptions::default()));
    assert_eq!(image.seal.root, root.parse().ok());
    assert_eq!((image.seal.hash_file, image.seal.hash_offset), (Some("/tree".into()), Some(4096)));
    assert!(
        sorted("verity.hashdevice=/tree").0.unwrap_err().to_string().contains("needs a root hash")
    );
    assert!(sorted("verity.roothashsig=x").0.unwrap_err().to_string().contains("options are"));
    assert!(sorted("verity.roothash=ab").0.unwrap_err().to_string().contains("64 or 128"));
    assert!(
        sorted("verity.roothashfile=/nonexistent/x").0.unwrap_err().to_string().contains("No such")
    );
}

#[test]
fn an_empty_list_has_no_options() {
    assert_eq!(sorted("").0, Ok(SortedOptions::default()));
}

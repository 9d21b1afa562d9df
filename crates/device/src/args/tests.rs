use super::*;

fn parsed(line: &str) -> Result<Command, String> {
    parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
}

#[test]
fn commands_take_their_options() {
    let image = || PathBuf::from("a");
    assert_eq!(
        parsed("apply --grow-over a -"),
        Ok(Command::Apply { image: image(), patch: "-".into(), grow_over: true, signature: None })
    );
    assert_eq!(
        parsed("rollback a --to=3"),
        Ok(Command::Rollback { image: image(), to: Some(3), grow_over: false })
    );
    assert_eq!(parsed("check a"), Ok(Command::Check { image: image(), deep: false }));
    assert_eq!(
        parsed("delta a d --resume n --cert x --signature s --cert y"),
        Ok(Command::Delta(DeltaArgs {
            old: image(),
            delta: "d".into(),
            new: "n".into(),
            resume: true,
            force: false,
            signature: Some(SignatureArgs {
                file: "s".into(),
                certs: vec!["x".into(), "y".into()]
            })
        }))
    );
    let root = "0f".repeat(32);
    let seal = |hash_offset| SealArgs { root: root.parse().unwrap(), hash_file: None, hash_offset };
    assert_eq!(
        parsed(&format!("verify a {root} --hash-offset 4096")),
        Ok(Command::Verify { image: image(), seal: seal(Some(4096)) })
    );
    let mount = |seal, patches| MountArgs {
        image: image(),
        dir: "d".into(),
        patches,
        seal,
        low_memory: false,
    };
    assert_eq!(
        parsed(&format!("mount a d --roothash {root}")),
        Ok(Command::Mount(mount(Some(seal(None)), Vec::new())))
    );
    assert_eq!(
        parsed("serve a d --patch x --patch y"),
        Ok(Command::Serve(mount(None, vec!["x".into(), "y".into()])))
    );
}

#[test]
fn wrong_usage_is_named() {
    for (line, reason) in [
        ("", "no command: see --help"),
        ("build a", "no command \"build\": see --help"),
        ("apply a", "apply: no PATCH: see --help"),
        ("repair a b", "unexpected argument \"b\""),
        ("check a --grow-over", "invalid option '--grow-over'"),
        ("delta a d n --signature s", "--signature and --cert need each other"),
        ("delta a d n --cert c", "--signature and --cert need each other"),
        ("mount a d --hash-file h", "--hash-file and --hash-offset need --roothash"),
    ] {
        assert_eq!(parsed(line), Err(reason.to_owned()), "{line}");
    }
    assert!(parsed("verify a 12").is_err());
}

use super::*;

fn excluded(text: &str, path: &str, is_dir: bool) -> bool {
    let patterns = Patterns::parse(text).unwrap();
    patterns.matched(path.as_bytes(), &|| is_dir, 0, &UsedPatterns::default()) == Some(true)
}

#[test]
fn patterns_are_those_of_gitignore() {
    let text = "# objects\n*.o\n!keep.o\n/build/\nsrc/**/cache\n\\#name\n";
    for (path, is_dir, expected) in [
        ("a.o", false, true),
        ("deep/below/a.o", false, true),
        ("deep/keep.o", false, false),
        ("build", true, true),
        ("build", false, false),
        ("sub/build", true, false),
        ("src/cache", true, true),
        ("src/a/b/cache", false, true),
        ("cache", true, false),
        ("#name", false, true),
        ("# objects", false, false),
    ] {
        assert_eq!(excluded(text, path, is_dir), expected, "{path}");
    }
}

#[test]
fn a_wrong_pattern_is_reported_with_its_line() {
    let error = Patterns::parse("*.o\n\n[z-a]\n").unwrap_err();
    assert_eq!(error.line, 3);
    assert!(error.to_string().starts_with("line 3: "), "{error}");
}

#[test]
fn top_paths_have_several_forms() {
    for pattern in ["/etc/shadow", "./etc/shadow", "etc/shadow", "././etc//./shadow"] {
        assert!(excluded(pattern, "etc/shadow", false), "{pattern}");
        assert!(!excluded(pattern, "usr/etc/shadow", false), "{pattern}");
    }
    assert!(excluded("./name", "name", false) && !excluded("./name", "below/name", false));
    assert!(excluded("etc/*", "etc/shadow", false) && !excluded("etc/*", "etc", true));
    assert!(!excluded("*\n!./keep", "keep", false) && excluded(".hidden", "a/.hidden", false));
}

#[test]
fn single_patterns_have_no_comments() {
    let patterns = Patterns::new(&["#a#", "b ", "c\\ ", "d\n"]).unwrap();
    let excluded =
        |path: &str| patterns.matched(path.as_bytes(), &|| false, 0, &UsedPatterns::default());
    for path in ["#a#", "b ", "c ", "d\n"] {
        assert_eq!(excluded(path), Some(true), "{path}");
    }
    assert_eq!((excluded("b"), excluded("c")), (None, None));
}

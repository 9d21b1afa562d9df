use super::*;

#[test]
fn patterns_that_match_nothing_are_found() {
    let patterns =
        Exclude::Patterns(Patterns::new(&["*.o", "main.o", "/lib/x", "!keep", "dir/"]).unwrap());
    let used = UsedPatterns::default();
    for (path, is_dir) in [("main.o", false), ("dir", false), ("keep", false)] {
        patterns.matches(path.as_bytes(), &|| is_dir, 3, &used);
    }
    // The last pattern that matches decides, but the others match, too.
    assert_eq!(patterns.unused(3, &used), ["/lib/x", "dir/"]);
    let path = Exclude::Path("a".into());
    assert!(path.matches(b"a", &|| false, 1, &used) && path.unused(1, &used).is_empty());
    assert_eq!(path.unused(2, &used), ["a"]);
}

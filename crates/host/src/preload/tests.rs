use super::*;

fn refusal(is_static: bool, set: &[(&str, &str)]) -> Option<PreloadError> {
    let value =
        |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
    refuse(is_static, value).err()
}

#[test]
fn a_program_that_lost_the_library_refuses() {
    let lost = |set: &[(&str, &str)]| matches!(refusal(false, set), Some(PreloadError::Lost));
    assert!(lost(&[("FAKEROOTKEY", "1877")]));
    assert!(lost(&[("FAKEROOTKEY", "1877"), ("LD_PRELOAD", "libjemalloc.so")]));
    assert!(lost(&[("PSEUDO_PREFIX", "/usr")]));
    assert!(!lost(&[("FAKEROOTKEY", "1877"), ("LD_PRELOAD", "libfakeroot-sysv.so")]));
    assert!(!lost(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_DISABLED", "1")]));
    assert!(!lost(&[]));
}

#[test]
fn a_static_program_refuses_to_work_below_these_libraries() {
    let refused =
        |set: &[(&str, &str)]| matches!(refusal(true, set), Some(PreloadError::StaticProgram));
    assert!(refused(&[("FAKEROOTKEY", "1877")]));
    assert!(refused(&[("LD_PRELOAD", "libfakeroot-sysv.so")]));
    assert!(refused(&[("LD_PRELOAD", "/lib/libm.so /usr/lib/pseudo/libpseudo.so")]));
    assert!(refused(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_DISABLED", "0")]));
    assert!(!refused(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_DISABLED", "1")]));
    assert!(!refused(&[("PSEUDO_PREFIX", "/usr"), ("PSEUDO_UNLOAD", "1")]));
    assert!(!refused(&[("LD_PRELOAD", "libjemalloc.so")]));
    assert!(!refused(&[("FAKEROOTKEY", "")]));
    assert!(!refused(&[]));
}

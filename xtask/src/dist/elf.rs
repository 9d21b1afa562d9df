//! Checks that a program needs no libraries of the system.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The type of the program header that names the dynamic loader.
const PT_INTERP: u32 = 3;

/// Fails if the 64-bit ELF file asks for a dynamic loader.
pub(super) fn check_static(path: &Path) -> Result<()> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    match has_interpreter(&bytes) {
        None => bail!("{}: not a 64-bit ELF file with little-endian numbers", path.display()),
        Some(true) => bail!("{}: needs a dynamic loader, so it is not static", path.display()),
        Some(false) => Ok(()),
    }
}

/// Whether a program header names a dynamic loader; `None` if these are not the bytes of an ELF file.
fn has_interpreter(bytes: &[u8]) -> Option<bool> {
    let number = |at: usize, len: usize| {
        let field = bytes.get(at..at.checked_add(len)?)?;
        Some(field.iter().rev().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte)))
    };
    // 64 bits, little-endian.
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, entry, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let header = usize::try_from(table.checked_add(index * entry)?).ok()?;
        if number(header, 4)? == u64::from(PT_INTERP) {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_found() {
        let mut file = vec![0; 64 + 2 * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (file[32], file[54], file[56]) = (64, 56, 2);
        assert_eq!(has_interpreter(&file), Some(false));
        file[64 + 56] = 3;
        assert_eq!(has_interpreter(&file), Some(true));
        file.truncate(100);
        assert_eq!(has_interpreter(&file), None);
        assert_eq!(has_interpreter(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn this_test_is_dynamic() {
        let program = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(has_interpreter(&program), Some(cfg!(not(target_feature = "crt-static"))));
    }
}

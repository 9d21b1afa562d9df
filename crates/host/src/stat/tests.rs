use super::*;

#[test]
fn a_change_within_the_tick_is_waited_for() {
    let time = |secs, nanos| Timestamp { secs, nanos };
    assert!(is_within_tick(time(5, 100), time(5, 100)));
    assert!(!is_within_tick(time(5, 100), time(5, 4_000_100)));
    assert!(is_within_tick(time(5, 0), time(6, 999_999_999)), "whole seconds");
    assert!(!is_within_tick(time(5, 0), time(7, 1)));
    assert!(!is_within_tick(time(9, 100), time(5, 100)), "another machine's clock");
    assert!(!is_within_tick(time(-5, 100), time(5, 100)));
}

#[test]
fn a_new_file_is_old_enough_after_it() {
    let file = tempfile::tempfile().unwrap();
    let stat = stat_fd(std::os::fd::AsFd::as_fd(&file)).unwrap();
    let ctime = Timestamp { secs: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 };
    wait_for_tick(ctime);
    assert!(now() > ctime);
}

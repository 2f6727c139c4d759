use super::*;

#[test]
fn process_start_is_constant() {
    let first = process_started(std::process::id()).expect("this process runs");
    let second = process_started(std::process::id()).expect("this process still runs");
    assert_eq!(first, second);
    assert!(first.may_equal(&second));
}

#[test]
fn impossible_pids_are_not_running() {
    assert_eq!(process_started(0), None);
    assert_eq!(process_started(u32::MAX), None);
    // Beyond the highest `pid_max` of Linux (2^22) and macOS (99998).
    assert_eq!(process_started(i32::MAX.unsigned_abs()), None);
}

#[test]
fn unknown_start_equals_any_start() {
    let unknown = ProcessStart::from_text("");
    let known = ProcessStart::from_text("4711");
    assert!(unknown.may_equal(&known));
    assert!(known.may_equal(&unknown));
    assert!(!known.may_equal(&ProcessStart::from_text("4712")));
}

#[test]
fn machine_has_host_name() {
    assert!(!host_name().is_empty());
    assert_eq!(host_name(), host_name());
}

#[test]
fn missing_directory_is_not_network() {
    assert!(!is_network_filesystem(Path::new("/no/such/directory")));
}

#[cfg(target_os = "linux")]
mod linux {
    use super::super::os::{
        ProcessStat, of_magic, parse_boot_time, parse_file_limit, parse_namespace, parse_stat, parse_stopped,
        start_time,
    };
    use super::*;

    #[test]
    fn start_time_counts_ticks_since_boot() {
        assert_eq!(parse_boot_time("cpu  1 2 3\nbtime 1763000000\nprocesses 7\n"), Some(1_763_000_000));
        assert_eq!(parse_boot_time("cpu  1 2 3\n"), None);
        let began = Timestamp::from_millisecond(1_763_000_012_340).unwrap();
        assert_eq!(start_time(1_763_000_000, 1234, 100), Some(began));
        assert_eq!(start_time(1_763_000_000, 1234, 0), None);
        assert_eq!(start_time(1, u64::MAX, 100), None);
    }

    #[test]
    fn open_files_are_counted_below_limit() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(parse_file_limit(limits), Some(1024));
        assert_eq!(parse_file_limit("Max open files  unlimited  unlimited  files\n"), None);
        let found = open_files(std::process::id()).expect("this process runs");
        assert!(found.used >= 3 && found.used <= found.limit, "{found:?}");
        assert_eq!(open_files(u32::MAX), None);
    }

    #[test]
    fn start_time_is_known_for_running_processes() {
        let began = process_start_time(std::process::id()).expect("this process runs");
        let now = crate::clock::Clock::system().now();
        // The kernel tells the time of its boot in whole seconds.
        assert!(began.as_second() <= now.as_second() + 1, "{began} is after {now}");
        assert_eq!(process_start_time(u32::MAX), None);
    }

    #[test]
    fn stat_is_parsed_after_last_parenthesis() {
        let fields = "1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 2000";
        let stat = format!("42 (a) S (b)) S {fields}");
        assert_eq!(parse_stat(&stat), Some(ProcessStat::Running("987654".to_owned())));
        let zombie = format!("42 (sh) Z {fields}");
        assert_eq!(parse_stat(&zombie), Some(ProcessStat::Ended));
    }

    #[test]
    fn malformed_stat_is_rejected() {
        for stat in ["", "42", "42 (sh)", "42 (sh) S", "42 (sh) S 1 2 3"] {
            assert_eq!(parse_stat(stat), None, "{stat:?}");
        }
    }

    #[test]
    fn stopped_process_has_state_t() {
        let stat = |state: &str| format!("12 (a) T (b) {state} 1 2 3");
        for (state, is_stopped) in [("T", true), ("t", true), ("S", false), ("R", false), ("Z", false)] {
            assert_eq!(parse_stopped(&stat(state)), Some(is_stopped), "{state}");
        }
        assert_eq!(parse_stopped("12 (a)"), None);
    }

    #[test]
    fn namespace_link_has_number_in_brackets() {
        assert_eq!(parse_namespace("pid:[4026531836]"), Some(4_026_531_836));
        assert_eq!(parse_namespace("net:[4026531836]"), None);
        assert_eq!(parse_namespace("pid:[]"), None);
    }

    #[test]
    fn boot_id_is_constant() {
        let id = boot_id().expect("Linux has a boot id");
        assert_eq!(id.len(), 36);
        assert_eq!(boot_id(), Some(id));
    }

    #[test]
    fn proc_is_not_network_filesystem() {
        assert!(!is_network_filesystem(Path::new("/proc")));
    }

    #[test]
    fn filesystem_magic_distinguishes_network_local_unknown() {
        for (name, magic) in
            [("nfs", 0x6969), ("9p", 0x0102_1997), ("fuse", 0x6573_5546), ("smb2", 0xFE53_4D42)]
        {
            assert_eq!(of_magic(magic), Filesystem::Network, "{name}");
        }
        assert_eq!(of_magic(0xEF53), Filesystem::Local);
        assert_eq!(of_magic(0x1234_5678), Filesystem::Unknown);
        assert_eq!(filesystem(Path::new("/no/such/directory")), Filesystem::Unknown);
    }
}

#[test]
fn file_limit_is_raised_never_lowered() {
    use rustix::process::{Resource, getrlimit};
    let before = getrlimit(Resource::Nofile);
    raise_file_limit(1);
    assert_eq!(getrlimit(Resource::Nofile).current, before.current);
    raise_file_limit(u64::MAX);
    let after = getrlimit(Resource::Nofile);
    assert!(after.maximum.is_none() || after.current == after.maximum, "{after:?}");
}

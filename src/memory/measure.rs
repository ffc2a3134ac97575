//! Reads what the process uses and what it may use, from the files that Linux shows. Elsewhere
//! those files are absent and nothing is known.

use std::{fs, path::Path};

/// Resident memory of this process. `root` is `/` outside of tests.
pub fn resident_bytes(root: &Path) -> Option<u64> {
    kilobytes(&fs::read_to_string(root.join("proc/self/status")).ok()?, "VmRSS:")
}

/// What the container allows, or the machine has: the least of all that is told.
pub fn available_bytes(root: &Path) -> Option<u64> {
    let machine = fs::read_to_string(root.join("proc/meminfo"))
        .ok()
        .and_then(|text| kilobytes(&text, "MemTotal:"));
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().filter_map(|line| group_bytes(root, line));
    machine.into_iter().chain(limits).min()
}

/// The limit that one line of `/proc/self/cgroup` leads to, that of all groups around it included.
fn group_bytes(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (mount, file) = if number == "0" && controllers.is_empty() {
        ("sys/fs/cgroup", "memory.max")
    } else if controllers.split(',').any(|controller| controller == "memory") {
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
    } else {
        return None;
    };
    let mount = root.join(mount);
    // Inside a container the path may be the host's: then only the mount's own root is there.
    let ancestors = Path::new(path.trim_start_matches('/')).ancestors();
    let limits = ancestors.filter_map(|group| {
        let text = fs::read_to_string(mount.join(group).join(file)).ok()?;
        text.trim().parse().ok() // the word `max` is no limit
    });
    limits.min()
}

fn kilobytes(text: &str, field: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(field))?;
    let count: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(count.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn root(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root =
            std::env::temp_dir().join(format!("kvbridge-memory-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_least_of_machine_and_groups_counts() {
        let meminfo = ("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 5 kB\n");
        let machine = root("machine", &[meminfo]);
        assert_eq!(available_bytes(&machine), Some(1_024_000));
        let second = root(
            "v2",
            &[
                meminfo,
                ("proc/self/cgroup", "0::/a/b\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.max", "4096\n"),
            ],
        );
        assert_eq!(available_bytes(&second), Some(4_096));
        let first = root(
            "v1",
            &[
                meminfo,
                ("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/x\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2048\n"),
            ],
        );
        assert_eq!(available_bytes(&first), Some(2_048));
        let unlimited = root(
            "none",
            &[
                meminfo,
                ("proc/self/cgroup", "4:memory:/\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ],
        );
        assert_eq!(available_bytes(&unlimited), Some(1_024_000));
        assert_eq!(available_bytes(Path::new("/nowhere")), None);
    }

    #[test]
    fn resident_memory_is_read() {
        let status = root("status", &[("proc/self/status", "Name:\tx\nVmRSS:\t    42 kB\n")]);
        assert_eq!(resident_bytes(&status), Some(43_008));
        assert_eq!(resident_bytes(Path::new("/nowhere")), None);
    }
}

//! How much memory a run on the simulator may take.

use std::fs::read_to_string;

/// What is taken at most, however much there is: larger runs take minutes.
const MOST: f64 = (8u64 << 30) as f64;
/// What is taken where the system does not say how much there is.
const UNKNOWN: f64 = (2u64 << 30) as f64;
/// The share of what is left that is taken.
const SHARE: f64 = 0.8;

/// Bytes that the process may take: a share of what the host, its control group and the limit of the process (`ulimit -v`) leave.
pub fn available() -> f64 {
    let host = read_to_string("/proc/meminfo").ok().and_then(|text| of_host(&text));
    let group = of_group(
        read_to_string("/sys/fs/cgroup/memory.max").ok().as_deref(),
        read_to_string("/sys/fs/cgroup/memory.current").ok().as_deref(),
    );
    let process = of_process(
        read_to_string("/proc/self/limits").ok().as_deref(),
        read_to_string("/proc/self/statm").ok().as_deref(),
    );
    let least = [host, group, process].into_iter().flatten().reduce(f64::min);
    least.map_or(UNKNOWN, |bytes| (bytes * SHARE).min(MOST))
}

/// `MemAvailable:   12345 kB`.
fn of_host(meminfo: &str) -> Option<f64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib * 1024.0)
}

/// What a control group has left; `max` is no limit.
fn of_group(most: Option<&str>, used: Option<&str>) -> Option<f64> {
    let number = |text: Option<&str>| text?.trim().parse::<f64>().ok();
    Some((number(most)? - number(used).unwrap_or(0.0)).max(0.0))
}

/// What the limit of the address space leaves beside what is mapped, in pages of 4 KiB.
fn of_process(limits: Option<&str>, statm: Option<&str>) -> Option<f64> {
    let line = limits?.lines().find_map(|l| l.strip_prefix("Max address space"))?;
    let limit = line.split_whitespace().next()?.parse::<f64>().ok()?;
    let pages = statm.and_then(|s| s.split_whitespace().next()?.parse::<f64>().ok());
    Some((limit - 4096.0 * pages.unwrap_or(0.0)).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_what_is_left() {
        assert_eq!(of_host("MemTotal: 100 kB\nMemAvailable:     2048 kB\n"), Some(2048.0 * 1024.0));
        assert_eq!(of_group(Some("max\n"), Some("5\n")), None);
        assert_eq!(of_group(Some("1000\n"), Some("400\n")), Some(600.0));
        let limits = |n| format!("Limit  Soft Limit  Hard Limit  Units\nMax address space  {n}  unlimited  bytes\n");
        assert_eq!(of_process(Some(&limits("unlimited")), Some("10 1")), None);
        assert_eq!(of_process(Some(&limits("8192000")), Some("1000 7 7")), Some(8_192_000.0 - 4_096_000.0));
        assert!(available() > 0.0 && available() <= MOST);
    }
}

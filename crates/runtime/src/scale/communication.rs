//! How long ranks take to send each other what they must.

/// How ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// Ranks in all.
    pub ranks: usize,
    /// Ranks on one host.
    pub ranks_per_host: usize,
    /// Bytes per second that a rank sends to another one on its host.
    pub host_link: f64,
    /// Bytes per second that a rank sends to another host.
    pub link: f64,
    /// Seconds until a message arrives, however short.
    pub latency: f64,
}

impl Cluster {
    /// All ranks, as a group.
    pub fn all(&self) -> Group {
        Group::of(self.ranks, self.ranks_per_host)
    }

    /// Seconds in which every rank of a group gets what all have: `bytes` in the end, of which each had its part.
    ///
    /// In two levels: across hosts, ranks with the same place on theirs gather what one rank of each host has to add,
    /// `(h-1)/h * bytes/g`; then those of one host exchange that, `(g-1)/g * bytes`. With one host, or one rank per host, this is
    /// the ring's `(n-1)/n * bytes`.
    pub fn all_gather(&self, bytes: f64, group: Group) -> f64 {
        let Group { inside, hosts } = group;
        let part = |count: usize| (count as f64 - 1.0) / count as f64;
        let within = part(inside) * bytes / self.host_link;
        let across = part(hosts) * bytes / inside as f64 / self.link;
        within + across + self.latency_of(group)
    }

    /// Seconds in which each rank of a group gets its part of the sum over all: an all-gather backwards.
    pub fn reduce_scatter(&self, bytes: f64, group: Group) -> f64 {
        self.all_gather(bytes, group)
    }

    /// Seconds in which every rank of a group gets the sum over all: `2(n-1)/n * bytes` over a ring.
    pub fn all_reduce(&self, bytes: f64, group: Group) -> f64 {
        self.reduce_scatter(bytes, group) + self.all_gather(bytes, group)
    }

    /// Seconds in which one rank sends another one something, across hosts where there are several.
    pub fn send(&self, bytes: f64) -> f64 {
        let link = if self.ranks > self.ranks_per_host { self.link } else { self.host_link };
        bytes / link + self.latency
    }

    /// Libraries take trees where a ring would take long for its many steps: messages that wait for each other grow with the
    /// logarithm of the ranks (NVIDIA, "Massively Scale Your Deep Learning Training with NCCL 2.4", 2019).
    fn latency_of(&self, group: Group) -> f64 {
        self.latency * (group.ranks() as f64).log2().ceil()
    }
}

/// Ranks that communicate: so many on each of so many hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Ranks on each host.
    pub inside: usize,
    /// Hosts.
    pub hosts: usize,
}

impl Group {
    /// Ranks that fill hosts of so many places one after the other.
    pub fn of(ranks: usize, per_host: usize) -> Group {
        let inside = ranks.min(per_host).max(1);
        Group { inside, hosts: ranks.div_ceil(inside).max(1) }
    }

    /// Ranks in all.
    pub fn ranks(&self) -> usize {
        self.inside * self.hosts
    }
}

/// Seconds of communication that nothing hides, where work is done in `parts` and each part's result is sent while the next
/// part is worked on. The first can be sent when it is done, and nothing hides the last: work and communication are two
/// stations of a line, whose slower one sets the pace.
pub fn exposed(parts: usize, work: f64, communication: f64) -> f64 {
    let parts = parts.max(1) as f64;
    let (work_of_one, sending_one) = (work / parts, communication / parts);
    let end = work_of_one + (parts - 1.0) * work_of_one.max(sending_one) + sending_one;
    end - work
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;

    fn cluster(ranks: usize, ranks_per_host: usize) -> Cluster {
        Cluster { ranks, ranks_per_host, host_link: 400.0 * GB, link: 50.0 * GB, latency: 0.0 }
    }

    fn close(seconds: f64, expected: f64) {
        assert!((seconds / expected - 1.0).abs() < 1e-9, "{seconds}, not {expected}");
    }

    #[test]
    fn a_ring_sends_twice_what_it_reduces() {
        // 2 * 7/8 of 4 GB at 400 GB/s.
        let one_host = cluster(8, 8);
        close(one_host.all_reduce(4.0 * GB, one_host.all()), 0.0175);
        // Eight hosts with one rank each: the same ring, over the slower link.
        let single = cluster(8, 1);
        close(single.all_reduce(4.0 * GB, single.all()), 0.14);
        // One rank has nobody to send to.
        assert_eq!(cluster(1, 8).all_reduce(4.0 * GB, cluster(1, 8).all()), 0.0);
    }

    #[test]
    fn hosts_share_what_crosses_their_links() {
        // 2 * 7/8 * 4 GB within each host, and 2 * 3/4 * 4/8 GB from each rank to others.
        let four = cluster(32, 8);
        close(four.all_reduce(4.0 * GB, four.all()), 0.0175 + 0.015);
        close(four.all_gather(4.0 * GB, four.all()), 0.01625);
        close(four.send(5.0 * GB), 0.1);
        close(cluster(8, 8).send(4.0 * GB), 0.01);
    }

    #[test]
    fn latency_grows_with_the_logarithm() {
        let far = Cluster { latency: 1e-5, ..cluster(1024, 8) };
        let near = cluster(1024, 8);
        close(far.all_gather(GB, far.all()) - near.all_gather(GB, near.all()), 1e-4);
    }

    #[test]
    fn the_last_part_is_never_hidden_and_a_slow_link_hides_work_instead() {
        // Ten parts of 0.1 s of work, each sent in 0.04 s: the last one alone is waited for.
        close(exposed(10, 1.0, 0.4), 0.04);
        // Each sent in 0.3 s: from the first result on, the link is busy.
        close(exposed(10, 1.0, 3.0), 0.1 + 3.0 - 1.0);
        // In one part nothing overlaps.
        close(exposed(1, 1.0, 0.4), 0.4);
    }
}

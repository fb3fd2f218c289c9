//! The collectives over real MPI libraries: this program runs itself under each `mpirun` that is installed.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use vitreous_engine::collective::{Bucket, Buckets, Launch, Sums, Wire, World, broadcast, gather_all, gather_parts};

/// Tells the started processes what to do.
const PART: &str = "VITREOUS_TEST_PART";

/// Runs a part under every `mpirun`. Says so where there is none.
fn under_every_mpi(ranks: usize, part: &str, check: impl Fn(&str, Output)) {
    let mut found = false;
    for (mpirun, more) in [("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"][..]), ("mpirun.mpich", &[])] {
        if Command::new(mpirun).arg("--version").output().is_err() {
            continue;
        }
        found = true;
        let mut command = Command::new(mpirun);
        command.args(more).args(["-n", &ranks.to_string()]).arg(std::env::current_exe().expect("this program"));
        command.args(["a_rank", "--exact", "--nocapture", "--test-threads=1"]).env(PART, part);
        check(mpirun, command.output().expect("mpirun starts"));
    }
    if !found {
        eprintln!("skipped: no mpirun");
    }
}

fn join() -> World {
    let launch = Launch::from_environment().expect("variables that make sense").expect("a launcher");
    let world = World::join(&launch, Box::new(|sentence| eprintln!("FAULT {sentence}"))).expect("the others");
    assert_eq!((world.rank(), world.size()), (launch.rank, launch.size));
    world
}

/// What each started process does.
#[test]
fn a_rank() {
    match std::env::var(PART).as_deref() {
        Ok("talk") => talk(),
        Ok("die") => die(),
        Ok("hang") => hang(),
        Ok("stick") => stick(),
        _ => {}
    }
}

fn talk() {
    let world = join();
    let (rank, size) = (world.rank(), world.size());
    assert!(world.hosts().iter().all(|host| !host.is_empty()) && !world.name().is_empty());
    assert_eq!((world.local_rank(), world.local_size()), (rank, size), "all are on one machine");
    // Short and long messages, and none.
    for length in [0, 1, 7, 100_000, 5_000_000] {
        let said = world.gather(vec![rank as u8; length * (rank + 1)]).expect("an exchange");
        let expected = |other: usize| vec![other as u8; length * (other + 1)];
        assert!(said.iter().enumerate().all(|(other, bytes)| *bytes == expected(other)), "{length}");
    }
    let from_first = world.from_first(if rank == 0 { b"the first".to_vec() } else { Vec::new() });
    assert_eq!(from_first.expect("an exchange"), b"the first");
    let from_last = world.ask(move |link| {
        let mut bytes = vec![rank as u8; 3_000_000];
        broadcast(link, size - 1, &mut bytes)?;
        Ok(bytes)
    });
    assert!(from_last.expect("an exchange").iter().all(|&byte| usize::from(byte) == size - 1));
    // Many sums on their way at the same time.
    let pieces: Vec<Vec<_>> =
        (0..40).map(|index| std::iter::once(index * 10_000..index * 10_000 + 9_999).collect()).collect();
    let buckets = Buckets::new(&pieces, 30_000, size);
    let gradient = move |batch: usize| -> Vec<f32> {
        (0..400_000).map(|place| ((batch * 31 + place) % 1009) as f32 * 0.001 + (1 << batch) as f32).collect()
    };
    let pending: Vec<_> = buckets
        .all()
        .iter()
        .cloned()
        .map(|bucket| {
            world.start(move |link| {
                let own = bucket.collect(&gradient(link.rank()));
                let mut sums = Sums::default();
                sums.add(link, &bucket, Some(&own), size, Wire::F32)?;
                gather_parts(link, &bucket, &sums.finish(), Wire::F32)
            })
        })
        .collect();
    let mut flat = vec![0.0; 400_000];
    for (bucket, sums) in buckets.all().iter().zip(pending) {
        Bucket::scatter(&bucket.pieces, &world.wait(sums).expect("sums"), &mut flat);
    }
    let mut expected = gradient(0);
    (1..size).for_each(|batch| expected.iter_mut().zip(gradient(batch)).for_each(|(sum, float)| *sum += float));
    (0..40).for_each(|index| expected[index * 10_000 + 9_999] = 0.0);
    assert!(flat.iter().zip(&expected).all(|(sum, expected)| sum.to_bits() == expected.to_bits()));
    world.barrier().expect("all are here");
    world.finish().expect("goodbye");
    println!("RANK {rank} DONE");
}

/// Sends this process a signal that ends or stops it.
fn send_myself(signal: &str) {
    let _ = Command::new("kill").args([signal, &std::process::id().to_string()]).status();
    // Any thread may be the one that gets it: on a busy machine the others go on for a moment.
    std::thread::sleep(Duration::from_secs(60));
}

/// The last rank is killed while the others wait for it.
fn die() {
    let world = join();
    world.barrier().expect("all are here");
    if world.rank() + 1 == world.size() {
        send_myself("-9");
    }
    let waited = world.ask(|link| gather_all(link, b"never"));
    println!("RANK {} WENT ON {waited:?}", world.rank());
}

/// The last rank is stopped, and does not die.
fn hang() {
    let world = join();
    world.barrier().expect("all are here");
    if world.rank() + 1 == world.size() {
        send_myself("-STOP");
    }
    let waited = world.ask(|link| gather_all(link, b"never"));
    println!("RANK {} WENT ON {waited:?}", world.rank());
}

/// The last rank is alive and does nothing.
fn stick() {
    let world = join();
    world.barrier().expect("all are here");
    world.expect_progress(Duration::from_secs(2));
    if world.rank() + 1 == world.size() {
        // As long as it says that it works, all is well.
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(500));
            world.note_progress();
        }
        println!("RANK {} WORKED", world.rank());
        std::thread::sleep(Duration::from_secs(60));
    }
    let waited = world.ask(|link| gather_all(link, b"never"));
    println!("RANK {} WENT ON {waited:?}", world.rank());
}

#[test]
fn ranks_talk_over_every_mpi() {
    for ranks in [2, 3, 4] {
        under_every_mpi(ranks, "talk", |mpirun, output| {
            let said = String::from_utf8_lossy(&output.stdout);
            let done = said.matches(" DONE").count();
            let failed = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && done == ranks, "{mpirun} -n {ranks}: {said}\n{failed}");
        });
    }
}

#[test]
fn a_rank_that_dies_or_hangs_ends_all() {
    for part in ["die", "hang", "stick"] {
        let before = Instant::now();
        under_every_mpi(3, part, |mpirun, output| {
            let said = String::from_utf8_lossy(&output.stdout);
            let failed = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && !said.contains("WENT ON"), "{mpirun} {part}: {said}\n{failed}");
            if part != "die" {
                assert!(failed.contains("FAULT rank 2 (host "), "{mpirun} {part}: {failed}");
            }
            if part == "stick" {
                assert!(said.contains("RANK 2 WORKED"), "{mpirun}: {said}");
                assert!(failed.contains("has come no further for 2 seconds"), "{mpirun}: {failed}");
            }
            eprintln!("{mpirun} {part}: {:?}\n{failed}", before.elapsed());
        });
        assert!(before.elapsed() < Duration::from_secs(120), "{part} ends before long");
    }
}

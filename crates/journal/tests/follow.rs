//! A follower reads each entry once, goes on as files are written, and counts what it could not read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use bindery_core::Subject;
use bindery_journal::{FolderWriter, Follower, Sink as _, What};

use self::support::{entry, folder_writer, rotation};

/// A size that no file of these tests reaches.
const LARGE: u64 = 1 << 30;

fn write(writer: &mut FolderWriter, name: &str) {
    writer.write(&entry(name).encode().unwrap()).unwrap();
}

/// A writer that ends a file before the next block.
fn of_files(folder: &Path) -> FolderWriter {
    folder_writer(folder, rotation(1, LARGE))
}

fn file(folder: &Path, number: u64) -> std::path::PathBuf {
    folder.join(format!("replica-1-{number:08}.bjournal"))
}

/// Everything that is there now: journal, file and number, and the volume that was decided.
fn read(follower: &mut Follower) -> Vec<(String, String)> {
    follower.look().unwrap();
    let mut found = Vec::new();
    while let Some(followed) = follower.next() {
        let place = format!("{}/{}/{}", followed.journal, followed.file, followed.number);
        let What::Decision(record) = &followed.entry.what else { panic!("{:?}", followed.entry.what) };
        let Subject::SyncVolume(volume) = &record.evidence.request.subject else { panic!("no volume") };
        found.push((place, volume.name.to_string()));
    }
    found
}

fn found(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries.iter().map(|(place, name)| ((*place).to_owned(), (*name).to_owned())).collect()
}

#[test]
fn entries_are_read_once_and_on_as_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut follower = Follower::new(folder.path(), BTreeMap::new());
    assert_eq!(read(&mut follower), []);
    let mut writer = folder_writer(folder.path(), rotation(LARGE, 4 * LARGE));
    write(&mut writer, "a");
    write(&mut writer, "b");
    assert_eq!(read(&mut follower), found(&[("replica-1/1/1", "a"), ("replica-1/1/2", "b")]));
    assert_eq!(read(&mut follower), []);
    write(&mut writer, "c");
    assert_eq!(read(&mut follower), found(&[("replica-1/1/3", "c")]));
    writer.end().unwrap();
    // Another writer takes a journal of its own while this one has its lock.
    let mut other = of_files(folder.path());
    write(&mut other, "d");
    assert_eq!(read(&mut follower), found(&[("replica-2/1/1", "d")]));
    write(&mut writer, "e");
    write(&mut other, "f");
    let mut both = read(&mut follower);
    both.sort();
    assert_eq!(both, found(&[("replica-1/2/1", "e"), ("replica-2/2/1", "f")]));
    assert_eq!(follower.lost_files(), 0);
}

#[test]
fn a_follower_that_starts_again_goes_on_at_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = folder_writer(folder.path(), rotation(LARGE, 4 * LARGE));
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| write(&mut writer, name));
    writer.end().unwrap();
    for read_before in 0..=names.len() {
        let mut first = Follower::new(folder.path(), BTreeMap::new());
        first.look().unwrap();
        (0..read_before).for_each(|_| assert!(first.next().is_some()));
        let mut second = Follower::new(folder.path(), first.positions());
        let rest: Vec<String> = read(&mut second).into_iter().map(|(_, name)| name).collect();
        assert_eq!(
            (rest, second.lost_files()),
            (names[read_before..].iter().map(|n| (*n).to_owned()).collect(), 0)
        );
        // And from the end.
        let mut third = Follower::new(folder.path(), second.positions());
        assert_eq!((read(&mut third), third.lost_files()), (Vec::new(), 0));
    }
}

#[test]
fn a_block_that_is_written_in_part_is_read_once_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = folder_writer(folder.path(), rotation(LARGE, 4 * LARGE));
    write(&mut writer, "a");
    let path = file(folder.path(), 1);
    let whole = fs::read(&path).unwrap().len();
    write(&mut writer, "b");
    let bytes = fs::read(&path).unwrap();
    for cut in [whole + 1, whole + 39, whole + 41, bytes.len() - 1] {
        fs::write(&path, &bytes[..cut]).unwrap();
        let mut follower = Follower::new(folder.path(), BTreeMap::new());
        assert_eq!(read(&mut follower), found(&[("replica-1/1/1", "a")]));
        assert_eq!(read(&mut follower), []);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(&bytes[cut..]).unwrap();
        assert_eq!(read(&mut follower), found(&[("replica-1/1/2", "b")]));
        assert_eq!(follower.lost_files(), 0);
    }
    // The writer is killed inside a block, and the next one begins a file.
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let mut follower = Follower::new(folder.path(), BTreeMap::new());
    assert_eq!(read(&mut follower), found(&[("replica-1/1/1", "a")]));
    drop(writer);
    write(&mut of_files(folder.path()), "c");
    assert_eq!(read(&mut follower), found(&[("replica-1/2/1", "c")]));
    assert_eq!(follower.lost_files(), 0);
}

#[test]
fn files_that_were_removed_before_they_were_read_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = of_files(folder.path());
    let names = ["a", "b", "c", "d", "e", "f"];
    names.iter().for_each(|name| write(&mut writer, name));
    let mut follower = Follower::new(folder.path(), BTreeMap::new());
    follower.look().unwrap();
    assert!(follower.next().is_some());
    let positions = follower.positions();
    (1..=3).for_each(|number| fs::remove_file(file(folder.path(), number)).unwrap());
    // The first is still open, and the last two are counted once.
    follower.look().unwrap();
    assert_eq!(follower.lost_files(), 2);
    let rest = found(&[("replica-1/4/1", "d"), ("replica-1/5/1", "e"), ("replica-1/6/1", "f")]);
    assert_eq!((read(&mut follower), follower.lost_files()), (rest.clone(), 2));
    // One that starts again has the rest of the first no more.
    let mut again = Follower::new(folder.path(), positions);
    assert_eq!((read(&mut again), again.lost_files()), (rest, 3));
    // Files in between.
    fs::remove_file(file(folder.path(), 5)).unwrap();
    let mut new = Follower::new(folder.path(), BTreeMap::new());
    let rest = found(&[("replica-1/4/1", "d"), ("replica-1/6/1", "f")]);
    assert_eq!((read(&mut new), new.lost_files()), (rest, 1));
}

#[test]
fn a_journal_that_begins_anew_is_read_from_its_first_file() {
    let folder = tempfile::tempdir().unwrap();
    for number in [1, 2] {
        let mut writer = of_files(folder.path());
        (0..=number).for_each(|_| write(&mut writer, "a"));
        let mut follower = Follower::new(folder.path(), BTreeMap::new());
        read(&mut follower);
        drop(writer);
        (1..=number + 1).for_each(|number| fs::remove_file(file(folder.path(), number)).unwrap());
        write(&mut of_files(folder.path()), "b");
        let mut again = Follower::new(folder.path(), follower.positions());
        assert_eq!((read(&mut again), again.lost_files()), (found(&[("replica-1/1/1", "b")]), 1));
        fs::remove_file(file(folder.path(), 1)).unwrap();
    }
}

#[test]
fn what_follows_damage_in_a_file_is_counted_and_the_next_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = of_files(folder.path());
    ["a", "b", "c"].iter().for_each(|name| write(&mut writer, name));
    let path = file(folder.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    fs::write(file(folder.path(), 2), "no journal").unwrap();
    let mut follower = Follower::new(folder.path(), BTreeMap::new());
    let whole = found(&[("replica-1/1/1", "a"), ("replica-1/3/1", "c")]);
    assert_eq!((read(&mut follower), follower.lost_files()), (whole, 2));
    let mut again = Follower::new(folder.path(), follower.positions());
    assert_eq!((read(&mut again), again.lost_files()), (Vec::new(), 0));
}

#[test]
fn given_a_file_that_was_cut_off_before_the_next_one_it_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = folder_writer(folder.path(), rotation(LARGE, 4 * LARGE));
    write(&mut writer, "a");
    let path = file(folder.path(), 1);
    let whole = path.metadata().unwrap().len();
    write(&mut writer, "b");
    writer.end().unwrap();
    write(&mut writer, "c");
    OpenOptions::new().write(true).open(&path).unwrap().set_len(whole).unwrap();
    let mut follower = Follower::new(folder.path(), BTreeMap::new());
    let left = found(&[("replica-1/1/1", "a"), ("replica-1/2/1", "c")]);
    assert_eq!((read(&mut follower), follower.lost_files()), (left, 1));
}

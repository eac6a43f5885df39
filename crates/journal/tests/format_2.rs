//! Journals of format 2: what is read is what was written, and whatever was changed is found.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use bindery_journal::{
    DecisionSummary, Differed, Ending, Entry, Files, FilesError, FolderWriter, Gap, Place, ReadError, Reader,
    Rotation, Sink as _, Swap, What, Wrote,
};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use self::support::{entry, folder_writer, rotation};

/// A size that no file of these tests reaches.
const LARGE: u64 = 1 << 30;

fn write(writer: &mut FolderWriter, entries: &[Entry]) {
    let plain: Vec<u8> = entries.iter().flat_map(|entry| entry.encode().unwrap()).collect();
    writer.write(&plain).unwrap();
}

/// A journal of files with one block of one decision each.
fn of_files(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = folder_writer(folder.path(), rotation(1, LARGE));
    names.iter().for_each(|name| write(&mut writer, &[entry(name)]));
    writer.end().unwrap();
    folder
}

/// A journal of one file with one block for each decision.
fn of_blocks(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = folder_writer(folder.path(), rotation(LARGE, 4 * LARGE));
    names.iter().for_each(|name| write(&mut writer, &[entry(name)]));
    writer.end().unwrap();
    folder
}

fn paths(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "bjournal"));
    paths.sort();
    paths
}

/// The entries, the errors, and how the journal ends.
fn read(folder: &Path) -> (Vec<Entry>, Vec<FilesError>, Ending) {
    let mut files = match Files::open(folder) {
        Ok(files) => files,
        Err(error) => return (Vec::new(), vec![error.source], Ending::Open),
    };
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for entry in files.by_ref() {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(error) => errors.push(error.source),
        }
    }
    (entries, errors, files.ending())
}

/// Whether a journal can be told from that of these entries, which its writer has ended.
fn is_found_changed(folder: &Path, written: &[Entry]) -> bool {
    let (entries, errors, ending) = read(folder);
    let is_found = !errors.is_empty() || ending != Ending::Ended;
    assert!(is_found || entries == written, "a change is not found");
    is_found
}

fn entries(names: &[&str]) -> Vec<Entry> {
    names.iter().map(|name| entry(name)).collect()
}

fn differed() -> Differed {
    let text = str::to_owned;
    let told = |answer| DecisionSummary { answer: text(answer), reason: String::new() };
    Differed {
        kind: text("MatchPolicy"),
        shadow: text("zones"),
        engine: text("a"),
        chain: text("b"),
        object: text("shop/data"),
        claim: true,
        now: 7,
        difference: text("other-volume"),
        active: told("binds volume a"),
        instead: told("binds volume b"),
    }
}

#[test]
fn entries_of_every_kind_are_read_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = folder_writer(folder.path(), rotation(LARGE, 4 * LARGE));
    let wrote = |result| Wrote {
        write: "bind claim".to_owned(),
        object: "shop/data".to_owned(),
        claim: true,
        uid: Some("u".to_owned()),
        version: Some("7".to_owned()),
        result,
    };
    let (from, to) = ("a".to_owned(), "b".to_owned());
    let kinds = [
        entry("a").what,
        What::Write(wrote(Ok(Some("8".to_owned())))),
        What::Write(wrote(Err("conflict".to_owned()))),
        What::Swap(Swap::Engine { from: from.clone(), to: to.clone() }),
        What::Swap(Swap::Policies { from, to }),
        What::Gap(Gap { lost: 3, from_ms: 1, to_ms: 2 }),
        What::Difference(Box::new(differed())),
    ];
    let written: Vec<Entry> = kinds.into_iter().map(|what| Entry { at_ms: 9, what }).collect();
    write(&mut writer, &written[..2]);
    // It is readable while it is written.
    assert_eq!(read(folder.path()).0, written[..2]);
    assert_eq!(read(folder.path()).2, Ending::Open);
    write(&mut writer, &written[2..]);
    writer.end().unwrap();
    let (entries, errors, ending) = read(folder.path());
    assert_eq!((entries, errors.len(), ending), (written, 0, Ending::Ended));
}

#[test]
fn a_record_of_an_unknown_kind_is_told_and_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = folder_writer(folder.path(), rotation(LARGE, 4 * LARGE));
    let mut plain = Entry { at_ms: 9, what: What::End }.encode().unwrap();
    plain[0] = 200;
    writer.write(&[plain, entry("a").encode().unwrap()].concat()).unwrap();
    assert_eq!(read(folder.path()).0, [Entry { at_ms: 9, what: What::Unknown(200) }, entry("a")]);
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let (names, mut flips) = (["a", "b"], 0);
    for folder in [of_blocks(&names), of_files(&names)] {
        for path in paths(folder.path()) {
            let whole = fs::read(&path).unwrap();
            for position in 0..whole.len() {
                let mut bytes = whole.clone();
                bytes[position] ^= 1;
                fs::write(&path, bytes).unwrap();
                assert!(is_found_changed(folder.path(), &entries(&names)), "{} {position}", path.display());
                flips += 1;
            }
            fs::write(&path, whole).unwrap();
        }
        assert!(!is_found_changed(folder.path(), &entries(&names)));
    }
    assert!(flips > 1_000, "{flips}");
}

#[test]
fn a_missing_file_is_found_unless_it_is_the_oldest() {
    let names = ["a", "b", "c"];
    for (number, is_found) in [(0, false), (1, true)] {
        let folder = of_files(&names);
        fs::remove_file(&paths(folder.path())[number]).unwrap();
        let (_, errors, _) = read(folder.path());
        assert_eq!(matches!(errors[..], [FilesError::Discontinued]), is_found, "file {number}");
    }
}

/// The file before one that its writer has only begun may be gone, or damaged later.
#[test]
fn given_a_file_that_was_only_begun_after_an_unknown_end_the_next_is_read() {
    for is_removed in [true, false] {
        let folder = of_files(&["a"]);
        fs::write(folder.path().join("replica-1-00000002.bjournal"), "").unwrap();
        write(&mut folder_writer(folder.path(), rotation(LARGE, 4 * LARGE)), &[entry("b")]);
        let first = &paths(folder.path())[0];
        if is_removed {
            fs::remove_file(first).unwrap();
        } else {
            fs::write(first, "nothing").unwrap();
        }
        let (left, errors, _) = read(folder.path());
        let is_only_damage = matches!(errors[..], [FilesError::File(ReadError::NotAJournal)]);
        assert!(if is_removed { errors.is_empty() } else { is_only_damage }, "{errors:?}");
        assert_eq!(left, entries(&["b"]));
    }
}

/// Damage of one file must not hide the others.
#[test]
fn given_a_first_file_that_is_no_journal_the_next_files_are_read() {
    let folder = of_files(&["a", "b"]);
    fs::write(&paths(folder.path())[0], "nothing").unwrap();
    let (left, errors, ending) = read(folder.path());
    assert!(matches!(errors[..], [FilesError::File(ReadError::NotAJournal)]), "{errors:?}");
    assert_eq!((left, ending), (entries(&["b"]), Ending::Ended));
}

#[test]
fn files_that_change_places_are_found() {
    let folder = of_files(&["a", "b", "c"]);
    let paths = paths(folder.path());
    let (second, third) = (fs::read(&paths[1]).unwrap(), fs::read(&paths[2]).unwrap());
    fs::write(&paths[1], third).unwrap();
    fs::write(&paths[2], second).unwrap();
    let (_, errors, _) = read(folder.path());
    assert!(matches!(errors[..], [FilesError::Discontinued, FilesError::Discontinued]), "{errors:?}");
}

#[test]
fn a_journal_cut_anywhere_is_read_to_its_last_block_and_continued() {
    let names = ["a", "b"];
    let whole = of_blocks(&names);
    let bytes = fs::read(&paths(whole.path())[0]).unwrap();
    let mut read_entries = std::collections::BTreeSet::new();
    for length in 0..bytes.len() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("replica-1-00000001.bjournal"), &bytes[..length]).unwrap();
        let (before, errors, ending) = read(folder.path());
        let is_begun = errors.is_empty();
        let is_unreadable =
            matches!(errors[..], [FilesError::File(ReadError::Empty | ReadError::Unfinished(Place::Header))]);
        assert!(is_begun || is_unreadable, "{length}: {errors:?}");
        assert!(ending != Ending::Ended);
        assert_eq!(before[..], entries(&names)[..before.len()]);
        read_entries.insert(before.len());

        let mut writer = folder_writer(folder.path(), rotation(LARGE, 4 * LARGE));
        write(&mut writer, &[entry("c")]);
        writer.end().unwrap();
        let (after, errors, ending) = read(folder.path());
        assert_eq!((errors.len(), ending), (0, Ending::Ended), "{length}: {errors:?}");
        assert_eq!(after, [before, entries(&["c"])].concat());
    }
    assert_eq!(read_entries.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_file_of_a_writer_that_starts_again_continues_the_chain() {
    let folder = of_files(&["a"]);
    let mut writer = folder_writer(folder.path(), rotation(LARGE, 4 * LARGE));
    write(&mut writer, &[entry("b")]);
    let files = paths(folder.path());
    let name = files[1].file_name().unwrap().to_str().unwrap();
    assert_eq!(name, "replica-1-00000002.bjournal");
    let headers = files.iter().map(|path| Reader::open(fs::File::open(path).unwrap()).unwrap());
    let numbers: Vec<u64> = headers.map(|reader| reader.header().unwrap().number).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(read(folder.path()).0, entries(&["a", "b"]));
}

#[test]
fn writers_that_share_a_folder_write_journals_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut writers = ["a", "b"].map(|name| (name, folder_writer(folder.path(), rotation(LARGE, 4 * LARGE))));
    for (name, writer) in &mut writers {
        write(writer, &[entry(name)]);
    }
    let names: Vec<String> =
        Files::open_each(folder.path()).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["replica-1", "replica-2"]);
    drop(writers);
    // The first free journal is continued.
    write(&mut folder_writer(folder.path(), rotation(LARGE, 4 * LARGE)), &[entry("c")]);
    assert_eq!(read(folder.path()).0, entries(&["a", "c", "b"]));
}

#[test]
fn the_oldest_files_are_removed_when_there_are_too_many_bytes() {
    let size = fs::metadata(&paths(of_files(&["a"]).path())[0]).unwrap().len();
    let folder = tempfile::tempdir().unwrap();
    let small = Rotation { size: size - 100, keep: 3 * size + 100, ..rotation(1, 1) };
    let mut writer = folder_writer(folder.path(), small);
    for name in ["a", "b", "c", "d", "e"] {
        write(&mut writer, &[entry(name)]);
        let bytes: u64 = paths(folder.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
        assert!(bytes <= 3 * size + 100);
    }
    let (left, errors, _) = read(folder.path());
    assert!(errors.is_empty(), "{errors:?}");
    assert!(left.len() >= 2 && left.last() == Some(&entry("e")), "{left:?}");
}

#[test]
fn an_old_file_is_ended_when_the_next_block_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let aged = Rotation { age: std::time::Duration::ZERO, ..rotation(LARGE, 4 * LARGE) };
    let mut writer = folder_writer(folder.path(), aged);
    for name in ["a", "b", "c"] {
        write(&mut writer, &[entry(name)]);
    }
    assert_eq!(paths(folder.path()).len(), 3);
    assert_eq!(read(folder.path()).0, entries(&["a", "b", "c"]));
}

#[test]
fn bytes_after_the_last_block_are_found() {
    let folder = of_blocks(&["a"]);
    let path = &paths(folder.path())[0];
    let bytes = [fs::read(path).unwrap(), vec![0; 60]].concat();
    fs::write(path, bytes).unwrap();
    let (_, errors, _) = read(folder.path());
    assert!(matches!(errors[..], [FilesError::File(ReadError::Broken(_))]), "{errors:?}");
}

/// Data that grows without end must not fill the memory of its reader.
#[test]
fn a_block_with_more_or_fewer_bytes_than_it_says_is_not_read() {
    for change in [-1, 1] {
        let folder = of_blocks(&["a"]);
        let path = &paths(folder.path())[0];
        let mut bytes = fs::read(path).unwrap();
        let number = |at: usize, bytes: &[u8]| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let block = 16 + 4 + number(16, &bytes) as usize + 32;
        let data = block + 40..block + 40 + number(block, &bytes) as usize;
        let plain = number(block + 4, &bytes).checked_add_signed(change).unwrap();
        bytes[block + 4..block + 8].copy_from_slice(&plain.to_le_bytes());
        let digest = Sha256::new().chain_update(&bytes[block - 32..block]);
        let digest = digest.chain_update(&bytes[block..block + 8]).chain_update(&bytes[data]).finalize();
        bytes[block + 8..block + 40].copy_from_slice(&digest);
        fs::write(path, bytes).unwrap();
        let (entries, errors, _) = read(folder.path());
        let is_refused = matches!(errors[..], [FilesError::File(ReadError::Undecodable { .. })]);
        assert!(is_refused && entries.is_empty(), "{errors:?}");
    }
}

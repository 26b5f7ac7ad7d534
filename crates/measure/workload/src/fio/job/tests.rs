//! Jobs as people paste them, read.

use super::*;
use proptest::prelude::*;

/// The jobs of a text, as a command line.
fn line(text: &str) -> String {
    FioPaste::read(text, None).unwrap().job.command_line()
}

fn refusal(text: &str) -> String {
    FioPaste::read(text, None).unwrap_err().to_string()
}

#[test]
fn a_line_ends_at_its_comment() {
    assert_eq!(
        line(
            "[global]\ndirect=1          ; past the page cache\nioengine=libaio   # as the database\n[db]  ; one\nrw=randread\nbs=8k\niodepth=4\n"
        ),
        "--name=db --direct=1 --ioengine=libaio --rw=randread --bs=8k --iodepth=4"
    );
}

#[test]
fn the_last_of_an_option_and_its_other_names_counts() {
    assert_eq!(
        line("[a]\nrw=randread\nreadwrite=write\nbs=4k\n"),
        "--name=a --rw=write --bs=4k"
    );
}

#[test]
fn a_group_of_options_is_for_the_jobs_behind_it() {
    assert_eq!(
        line("[a]\nbs=4k\n[global]\nname=all\nbs=64k\n[b]\nrw=read\n"),
        "--name=a --bs=4k --name=b --bs=64k --rw=read"
    );
    assert_eq!(
        line("fio --bs=4k --name=a --rw=read --name=global --direct=1 --name=b"),
        "--name=a --bs=4k --rw=read --name=b --bs=4k --direct=1"
    );
}

#[test]
fn one_section_can_be_named() {
    let text = "[global]\nfilename=/dev/vdb\nsize=64m\n[reads]\nrw=randread\n[writes]\nstonewall\nrw=randwrite\n";
    let all = FioPaste::read(text, None).unwrap();
    assert_eq!(
        all.job.command_line(),
        "--name=reads --size=64m --rw=randread --name=writes --size=64m --stonewall --rw=randwrite"
    );
    assert_eq!(all.notes, ["filename=/dev/vdb: the measured disk"]);
    let one = FioPaste::read(text, Some("writes")).unwrap().job;
    assert_eq!(
        one.command_line(),
        "--name=writes --size=64m --stonewall --rw=randwrite"
    );
    let error = FioPaste::read(text, Some("x")).unwrap_err().to_string();
    assert!(
        error.contains("'x'") && error.contains("reads, writes"),
        "{error}"
    );
}

#[test]
fn command_lines_are_read_as_people_paste_them() {
    let text = "$ sudo taskset -c 1 fio --name=a --filename=/dev/vdb --direct 1 --rw=randread \\\n --bs=4k --time_based \
                --output-format=json --group_reporting | tee log.txt";
    let read = FioPaste::read(text, None).unwrap();
    assert_eq!(
        read.job.command_line(),
        "--name=a --direct=1 --rw=randread --bs=4k --time_based --group_reporting"
    );
    assert_eq!(read.notes.len(), 3, "{:?}", read.notes);
    assert!(read.notes[0].contains("taskset") && read.notes[1].contains("tee log.txt"));
    for (text, named) in [
        ("fio --name='a", "quote"),
        ("fio job.fio --bs=4k", "'job.fio'"),
        ("fio --name=a --client=host", "client=host"),
        ("fio --name=a --trigger='rm -rf /'", "trigger=rm -rf /"),
        ("fio --name=a --filenam=/dev/sda", "filenam=/dev/sda"),
    ] {
        assert!(refusal(text).contains(named), "{text}: {}", refusal(text));
    }
}

/// Each option that names a file, a device or a program, in the form of a job's line.
pub(crate) const HOSTILE: [&str; 28] = [
    "exec_prerun=touch /canary",
    "exec_postrun=touch /canary",
    "ioengine=exec",
    "ioengine=external:/tmp/evil.so",
    "ioengine=/tmp/evil.so",
    "ioengine=net",
    "ioengine=ftruncate",
    "ioengine=filedelete",
    "ioengine=e4defrag",
    "ioengine=io_uring_cmd",
    "read_iolog=/dev/sda",
    "write_iolog=/dev/sda",
    "replay_redirect=/dev/sda",
    "merge_blktrace_file=/dev/sda",
    "filename=/dev/sda:/dev/sdb",
    "opendir=/etc",
    "cgroup=/x",
    "uid=0",
    "gid=0",
    "ioscheduler=none",
    "verify_state_load=1",
    "mem=mmaphuge:/dev/sda",
    "buffer_pattern='/etc/shadow'",
    "verify_pattern='/etc/shadow'",
    "profile=act",
    "include /etc/passwd",
    "size=$(reboot)",
    "bs=${HOME}",
];

#[test]
fn what_names_a_file_a_device_or_a_program_is_refused_by_its_name() {
    for option in HOSTILE {
        let name = option.split(['=', ' ']).next().unwrap();
        let why = refusal(&format!("[a]\nrw=write\n{option}\n"));
        assert!(why.contains(name) && why.len() < 400, "{option}: {why}");
    }
    assert!(refusal("[a]\nnot_an_option=1\n").contains("not_an_option=1"));
}

#[test]
fn the_disk_stands_in_for_every_file() {
    let read = FioPaste::read(
        "[a]\nfilename=/dev/vdb\ndirectory=/data\nunlink=1\nsize=4G\nruntime=30\nrw=write\n",
        None,
    )
    .unwrap();
    let text = read.job.file("/disk", 256 << 20, 1.0);
    assert_eq!(
        text,
        "[a]\nsize=268435456\nrw=write\nfilename=/disk\nallow_file_create=0\nfallocate=none\nruntime=1000ms\ntime_based=1\n"
    );
    let behind = FioPaste::read("[a]\nsize=4G\noffset=1M\nrw=write\n", None).unwrap();
    assert!(!behind.job.file("/disk", 256 << 20, 1.0).contains("size="));
    assert_eq!(read.notes.len(), 2, "{:?}", read.notes);
    let differences = read.job.differences(256 << 20, 1.0);
    assert!(differences[0].starts_with("size=4G") && differences[1].starts_with("runtime=30"));
    let null = FioPaste::read("[a]\nioengine=null\nsize=4G\nrw=write\n", None).unwrap();
    assert!(null.job.file("/disk", 1 << 20, 1.0).contains("size=4G\n"));
    let whole = read.job.file("/disk", 8 << 30, 0.0);
    assert!(
        whole.contains("size=4G\nruntime=30\n") && !whole.contains("time_based"),
        "{whole}"
    );
}

#[test]
fn a_job_that_would_verify_after_its_time_says_so() {
    let notes = |options: &str| {
        let job = FioPaste::read(&format!("[a]\nruntime=9\n{options}"), None)
            .unwrap()
            .job;
        let notes = job.differences(1 << 20, 2.0).into_iter();
        notes
            .filter(|note| note.starts_with("verify="))
            .collect::<Vec<_>>()
    };
    let said = notes("rw=randwrite\nverify=crc32c\n");
    assert!(
        said[0].starts_with("verify=crc32c: fio writes for all of 2 s"),
        "{said:?}"
    );
    for other in [
        "rw=read\nverify=crc32c\n",
        "rw=write\nverify=md5\nverify_backlog=8\n",
        "rw=write\nverify=md5\ndo_verify=0\n",
    ] {
        assert_eq!(notes(other), Vec::<String>::new(), "{other}");
    }
}

#[test]
fn a_flag_has_a_value_so_that_fio_prints_it() {
    let job = FioPaste::read("[a]\nrw=read\n[b]\nstonewall\nrw=read\n", None)
        .unwrap()
        .job;
    assert!(
        job.file("/disk", 1 << 20, 0.0)
            .contains("[b]\nstonewall=1\nrw=read\n")
    );
    assert!(
        job.command_line()
            .ends_with("--name=b --stonewall --rw=read")
    );
}

#[test]
fn its_requests_are_told_as_far_as_they_can_be() {
    let work = |text: &str| {
        let work = FioPaste::read(text, None).unwrap().job.work();
        (work.block, work.random, work.write, work.depth)
    };
    assert_eq!(work("[a]\nrw=randread\n"), (4096, true, false, 1));
    assert_eq!(
        work("[a]\nrw=randrw\nioengine=libaio\niodepth=16\nnumjobs=4\nbs=16k,8k\n"),
        (16384, true, true, 64)
    );
    assert_eq!(
        work("[a]\nrw=write\niodepth=16\n[b]\nrw=read\nbs=1m\n"),
        (1 << 20, false, true, 2)
    );
    assert!(
        FioPaste::read("[a]\nrate_iops=500\n", None)
            .unwrap()
            .job
            .is_rated()
    );
}

#[test]
fn what_writes_is_named() {
    let option = |text: &str| FioPaste::read(text, None).unwrap().job.writing_option();
    for text in ["[a]\nbs=4k\n", "[a]\nrw=randread:8\n[b]\nreadwrite=read\n"] {
        assert_eq!(option(text), None, "{text}");
    }
    for rw in [
        "write",
        "randwrite",
        "rw",
        "randrw",
        "trim",
        "randtrim",
        "trimwrite",
        "readwrite",
        "r",
        "",
    ] {
        let found = option(&format!("[a]\nrw=read\n[b]\nrw={rw}\n"));
        assert!(found.is_some_and(|found| found.starts_with("rw")), "{rw}");
    }
}

#[test]
fn large_texts_are_one_line() {
    for text in [
        "[a]\n".repeat(10_000),
        format!("[a]\n{}", "bs=4k\n".repeat(1 << 16)),
        format!("[a]\nbs={}\n", "4".repeat(5000)),
        "[a\n".to_owned(),
        "rw=read\n".to_owned(),
        String::new(),
        format!(
            "[global]\n{}{}",
            "bs=4k\n".repeat(1 << 16),
            "[a]\n".repeat(256)
        ),
        format!("fio --name='a{}", " 'b".repeat(1 << 16)),
    ] {
        if let Err(error) = FioPaste::read(&text, None) {
            assert!(error.to_string().lines().count() == 1 && error.to_string().len() < 300);
        }
    }
}

#[test]
fn each_of_many_different_notes_stands_once() {
    let names: String = (0..60_000)
        .map(|n| format!("filename=/dev/{}\n", n / 2))
        .collect();
    let read = FioPaste::read(&format!("[a]\nrw=read\n{names}"), None).unwrap();
    assert_eq!(read.notes.len(), 30_000);
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "(\\[[a-z]*\\]|--?[a-z_]{1,10}[= ]?|[a-z_]{1,10}=?[a-z0-9'\"$;#:]{0,6}|\n|fio ){0,20}") {
        if let Ok(read) = FioPaste::read(&text, None) {
            // Read again it is the same, and its file has no option but those that were understood.
            let again = FioPaste::read(&read.job.command_line(), None).unwrap();
            prop_assert_eq!(&again.job, &read.job);
            let file = read.job.file("/disk", 1 << 20, 1.0);
            prop_assert!(!file.contains(['$', ';', '#']));
        }
    }

    #[test]
    fn no_value_becomes_another_line(value in "[ -~\n\r\t]{0,40}") {
        if let Ok(read) = FioPaste::read(&vmtax_model::shell_line(&["fio".to_owned(), "--name=a".to_owned(), format!("--bs={value}")]), None) {
            let file = read.job.file("/disk", 1 << 20, 0.0);
            prop_assert_eq!(file.lines().count(), 5, "{}", file);
        }
    }
}

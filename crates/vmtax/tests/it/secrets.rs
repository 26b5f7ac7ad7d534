//! Secrets of command lines, environments, addresses and domains are in nothing that vmtax prints or writes.

use crate::common::{Place, files_below};
use std::fs;

const SECRET: &str = "Q7zT9secretless0w";

/// Texts of a VM with a secret in several forms.
fn texts() -> Vec<(&'static str, String)> {
    let line = "qemu-system-x86_64 -m 1G -drive file=/a.img,if=virtio,format=raw";
    let domain = |more: &str| {
        format!(
            "<domain type='kvm'><name>a</name><memory>1048576</memory><devices><disk type='file' device='disk'>\
             <source file='/a.img'/><target dev='vda' bus='virtio'/></disk>{more}</devices></domain>"
        )
    };
    [
        ("rbd.cmd", format!("{line} -drive file=rbd:p/i:id=x:key={SECRET}:mon_host=h,if=virtio")),
        ("url.cmd", format!("{line} -cdrom https://bob:{SECRET}@h/x.iso?token={SECRET}")),
        ("spice.cmd", format!("{line} -spice port=0,password={SECRET} -object secret,id=s,data={SECRET}")),
        ("firmware.cmd", format!("{line} -fw_cfg name=opt/x,string={SECRET} -smbios type=11,value={SECRET}")),
        ("incoming.cmd", format!("{line} -incoming 'exec:curl -u bob:{SECRET} https://h/x'")),
        ("environment.sh", format!("#!/bin/sh\nexport VAULT_TOKEN={SECRET}\nAWS_SECRET_ACCESS_KEY={SECRET} {line}\n")),
        ("unread.cmd", format!("{line} -drive file=nbd://bob:{SECRET}@h/x,if=virtio -spice 'password={SECRET}")),
        ("graphics.xml", domain(&format!("<graphics type='vnc' passwd='{SECRET}'/>"))),
        ("cookie.xml", domain(&format!("<x><cookie name='a'>{SECRET}</cookie></x>"))),
        (
            "arguments.xml",
            domain("").replace(
                "</devices>",
                &format!(
                    "</devices><qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><qemu:arg value='-spice'/>\
                     <qemu:arg value='password={SECRET}'/><qemu:env name='A_TOKEN' value='{SECRET}'/></qemu:commandline>"
                ),
            ),
        ),
        ("cut.xml", domain(&format!("<graphics passwd='{SECRET}'"))),
        ("proxmox.conf", format!("cores: 2\nmemory: 512\ncipassword: {SECRET}\nargs: -spice password={SECRET}\nname: a\n")),
        ("other.txt", format!("curl -H 'Authorization: Bearer {SECRET}' https://h/x")),
        ("no-vm.txt", format!("--token {SECRET}")),
    ]
    .into()
}

#[test]
fn no_secret_of_a_pasted_text_is_printed() {
    let place = Place::new();
    for (name, text) in texts() {
        let file = place.put(name, &text).display().to_string();
        for like in [file.as_str(), text.as_str()] {
            for format in ["text", "json", "md", "html"] {
                let command = place
                    .vmtax("review --format")
                    .arg(format)
                    .arg("--")
                    .arg(like);
                let outcome = command.start(60).outcome();
                let printed = outcome.stdout + &outcome.stderr;
                assert!(
                    !printed.contains(SECRET) && !printed.is_empty(),
                    "{name}: {printed}"
                );
            }
            let command = place
                .vmtax("tune --dry-run --machine tcg")
                .arg(format!("--like={like}"));
            let outcome = command.words("-- disk").start(60).outcome();
            let printed = outcome.stdout + &outcome.stderr;
            assert!(
                !printed.contains(SECRET) && !printed.is_empty(),
                "{name}: {printed}"
            );
        }
    }
    let outcome = place
        .vmtax("review --formt")
        .arg(format!("--token={SECRET}"))
        .start(60)
        .outcome();
    assert!(!(outcome.stdout + &outcome.stderr).contains(SECRET));
}

#[test]
fn a_command_gets_its_secret_and_no_file_of_the_recording_has_it() {
    let place = Place::new();
    let outcome = place
        .vmtax("exec --machine native --rounds 1 --output out --")
        .arg("sh")
        .arg("-c")
        .arg(format!("test ${{#2}} -eq {}", SECRET.len()))
        .words("x --token")
        .arg(SECRET)
        .arg(format!("https://bob:{SECRET}@h/x"))
        .succeeds();
    assert!(
        outcome.stderr.contains("SECRET-REMOVED"),
        "{}",
        outcome.stderr
    );
    let report = place.vmtax("report out --json").succeeds();
    for text in [outcome.stdout, outcome.stderr, report.stdout, report.stderr] {
        assert!(!text.contains(SECRET), "{text}");
    }
    place.vmtax("export out --dataset data").succeeds();
    let job = |depth: u32| {
        format!("fio.job=--name=a --rw=read --iodepth={depth} --description=token={SECRET}")
    };
    let compared = place
        .vmtax("compare --machine native --rounds 6 --output compared")
        .arg(job(1))
        .arg(job(2))
        .words("-- fio time=0.05")
        .start(60)
        .outcome();
    assert!(!(compared.stdout + &compared.stderr).contains(SECRET));
    let folders = ["out", "data", "compared"].map(|name| place.path(name));
    let folders = folders
        .into_iter()
        .chain([place.runs()])
        .collect::<Vec<_>>();
    for file in folders
        .iter()
        .filter(|folder| folder.exists())
        .flat_map(|folder| files_below(folder))
    {
        let bytes = fs::read(&file).unwrap();
        let has_secret = bytes
            .windows(SECRET.len())
            .any(|part| part == SECRET.as_bytes());
        assert!(!has_secret, "{}", file.display());
    }
    place
        .vmtax("run --output again out/plan.toml")
        .fails(&["the command of the plan has SECRET-REMOVED"]);
    let variable = place
        .vmtax("exec --machine native --rounds 1 --output variable --")
        .words("sh -c")
        .arg("test -n \"$A_TOKEN\" && : --token \"$A_TOKEN\"")
        .env("A_TOKEN", SECRET)
        .succeeds();
    assert!(
        !variable.stderr.contains("SECRET-REMOVED"),
        "{}",
        variable.stderr
    );
    place
        .vmtax("run --output by-variable variable/plan.toml")
        .env("A_TOKEN", SECRET)
        .succeeds();
    place.nothing_is_left();
}

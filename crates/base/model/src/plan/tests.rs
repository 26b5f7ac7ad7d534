//! Plans as people write them: read, refused, and written again.

use super::*;
use crate::{Machine, Probes, SECRET_REMOVED, WithCommand, WorkloadName, WorkloadSpec};

fn plan() -> Plan {
    let workload = WorkloadSpec::new(WorkloadName::Cpu).with("max-prime", 2000);
    Plan {
        seed: 7,
        ..Plan::new("t", 40, vec![Machine::NATIVE, Machine::TCG], vec![workload])
    }
}

#[test]
fn toml_reads_back() {
    assert_eq!(Plan::from_toml(&plan().to_toml().unwrap()), Ok(plan()));
}

#[test]
fn unknown_keys_are_named_with_their_line() {
    let text = "rounds = 6\nmachines = [\"native\"]\nrepeats = 3\n[[workload]]\nname = \"cpu\"\n";
    let error = Plan::from_toml(text).unwrap_err().to_string();
    assert!(
        error.contains("line 3") && error.contains("repeats"),
        "{error}"
    );
}

#[test]
fn numbers_and_booleans_need_no_quotes() {
    let text = "rounds = 1\nmachines = [\"native\"]\n[[workload]]\nname = \"fileio\"\noptions = { time = 0.5, fsync-end = false, num = 4 }\n";
    let o = &Plan::from_toml(text).unwrap().workloads[0].options;
    assert_eq!(
        (
            o["time"].as_str(),
            o["fsync-end"].as_str(),
            o["num"].as_str()
        ),
        ("0.5", "off", "4")
    );
}

#[test]
fn nonsense_is_refused() {
    let refused = |change: fn(&mut Plan)| {
        let mut p = plan();
        change(&mut p);
        p.check().is_err()
    };
    assert!(refused(|p| p.rounds = 0));
    assert!(refused(|p| p.machines.clear()));
    assert!(refused(|p| p.workloads.clear()));
    assert!(refused(|p| p.machines.push(Machine::TCG)));
    assert!(refused(|p| p.name = "../x".into()));
    assert!(refused(|p| p.schema = 99));
    assert!(refused(|p| p.guest.cpus = 0));
}

#[test]
fn a_plan_is_stored_without_the_secrets_of_its_variants_and_workloads() {
    let mut plan = plan();
    let set = [
        ("qemu-args", "-object secret,id=s,data=S3cret"),
        ("iothread", "on"),
        ("drive.password", "S3cret"),
    ];
    plan.variants.push(Variant {
        name: "kernel-args=token=S3cret".to_owned(),
        set: set
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    });
    assert_eq!(plan.part_without_secret(), None);
    let stored = plan.without_secrets();
    assert!(!stored.to_toml().unwrap().contains("S3cret"), "{stored:?}");
    assert_eq!(stored.variants[1].set["iothread"], "on");
    assert_eq!(stored.part_without_secret(), Some("a variant"));
    plan.variants.pop();
    plan.workloads[0]
        .options
        .insert("api-token".to_owned(), "S3cret".to_owned());
    let stored = plan.without_secrets();
    assert_eq!(stored.workloads[0].options["api-token"], SECRET_REMOVED);
    assert_eq!(stored.part_without_secret(), Some("a workload"));
}

#[test]
fn a_guest_comes_up_in_each_variant_and_the_host_once() {
    let text = "rounds = 1\nmachines = [\"native\", \"tcg\"]\nprobes = [\"none\", \"layers\"]\n[[variant]]\nname = \"a\"\n\
                [[variant]]\nname = \"b\"\nset = { aio = \"native\" }\n[[workload]]\nname = \"disk\"\n";
    let plan = Plan::from_toml(text).unwrap();
    assert_eq!(plan.schedule().len(), 3);
    assert_eq!(plan.trials_per_round(), 5);
    assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
    assert_eq!(plan.variants[1].set["aio"], "native");
    let twice = Plan {
        variants: vec![Variant::default(), Variant::default()],
        ..plan
    };
    assert!(twice.check().is_err());
}

#[test]
fn sides_may_be_on_machines_of_their_own() {
    let text = include_str!("../../../../../fuzz/corpus/plan/compare.toml");
    let plan = Plan::from_toml(text).unwrap();
    assert_eq!(plan.columns(), [(Machine::KVM, "a"), (Machine::TCG, "b")]);
    assert_eq!((plan.schedule().len(), plan.trials_per_round()), (80, 4));
    assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
    let guest = plan.variants[1].guest(&plan.guest).unwrap();
    assert_eq!((guest.memory_mib, guest.kernel), (512, Some("6.1".into())));
    assert_eq!(
        plan.variants[1].host().into_iter().collect::<Vec<_>>(),
        [("thp", "never")]
    );
    assert!(plan.variants.iter().all(|v| v.disk().is_empty()));
    let refused = |from: &str, to: &str| Plan::from_toml(&text.replace(from, to)).is_err();
    assert!(
        refused("machine = \"tcg\"", "machine = \"kvm\""),
        "nothing on tcg"
    );
    assert!(refused("min-effect = 0.02", "min-effect = 0.0") && refused("\"512\"", "\"some\""));
    assert!(refused("\"512\"", "\"16\"") && refused("kernel = \"6.1\", ", "modules = \"x\", "));
}

#[test]
fn a_long_transmit_queue_needs_vhost_user() {
    let text = "rounds = 1\nmachines = [\"tcg\"]\n[[variant]]\nname = \"a\"\n\
                set = { backend = \"vhost-user\", tx_queue_size = \"1024\" }\n[[workload]]\nname = \"net-stream\"\n";
    assert!(Plan::from_toml(text).is_ok());
    let with_tap = text.replace("vhost-user", "tap");
    let error = Plan::from_toml(&with_tap).unwrap_err().to_string();
    assert!(
        error.contains("QEMU lowers tx_queue_size to 256"),
        "{error}"
    );
    assert!(Plan::from_toml(&with_tap.replace("1024", "256")).is_ok());
}

#[test]
fn a_shared_tree_needs_a_tree() {
    let text = "rounds = 1\nmachines = [\"tcg\"]\n[tree]\nfiles = 10\n[[variant]]\nname = \"a\"\n\
                set = { share = \"9p\", \"share.msize\" = \"8192\", qemu = \"5.2\", aio = \"native\" }\n\
                [[workload]]\nname = \"cpu\"\n";
    let plan = Plan::from_toml(text).unwrap();
    assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
    let variant = &plan.variants[0];
    assert_eq!(variant.disk().into_keys().collect::<Vec<_>>(), ["aio"]);
    assert_eq!(variant.qemu(), Some(std::path::Path::new("5.2")));
    assert!(
        Plan {
            tree: None,
            ..plan.clone()
        }
        .check()
        .is_err()
    );
    assert!(
        Plan {
            machines: vec![Machine::MICRO_TCG],
            ..plan
        }
        .check()
        .is_err()
    );
}

#[test]
fn every_round_has_every_machine_and_the_order_varies_by_seed() {
    let s = plan().schedule();
    assert_eq!(s.len(), 80);
    for pair in s.chunks(2) {
        assert_eq!(pair[0].round, pair[1].round);
        assert_ne!(pair[0].machine, pair[1].machine);
    }
    let first_native = s
        .chunks(2)
        .filter(|p| p[0].machine == Machine::NATIVE)
        .count();
    assert!((8..=32).contains(&first_native), "{first_native}");
    assert_eq!(s, plan().schedule());
    assert_ne!(s, Plan { seed: 8, ..plan() }.schedule());
}

fn growing(option: &str, steps: &[u64]) -> Result<Plan, PlanError> {
    Plan::from_toml(&format!(
        "rounds = 2\nmachines = [\"native\", \"tcg\"]\n[range]\noption = \"{option}\"\nsteps = {steps:?}\n\
         [[workload]]\nname = \"disk\"\noptions = {{ mode = \"random\" }}\n"
    ))
}

#[test]
fn sizes_rise_by_about_the_same_factor_and_end_where_they_should() {
    assert_eq!(
        SizeRange::geometric("x.y", 1, 32, 6).steps,
        [1, 2, 4, 8, 16, 32]
    );
    assert_eq!(SizeRange::geometric("x.y", 1, 4, 8).steps, [1, 2, 3, 4]);
    let wide = SizeRange::geometric("x.y", 1000, 278_000, 8).steps;
    assert_eq!((wide.len(), wide[0], wide[7]), (8, 1000, 278_000));
    assert!(
        wide.windows(2)
            .all(|p| (2.1..2.4).contains(&(p[1] as f64 / p[0] as f64))),
        "{wide:?}"
    );
    // What does not rise is left for the check to refuse.
    assert_eq!(SizeRange::geometric("x.y", 5, 5, 4).steps, [5]);
}

#[test]
fn sizes_that_share_a_boot_follow_on_each_other() {
    let plan = growing("disk.depth", &[1, 4, 32]).unwrap();
    assert!(plan.shared_boot().is_none() && plan.boots_per_round() == 6);
    let range = SizeRange {
        one_boot: true,
        ..plan.range().unwrap().clone()
    };
    let plan = Plan {
        rounds: 20,
        study: Study::Scale(range),
        ..plan
    };
    assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
    let schedule = plan.schedule();
    let boots: Vec<_> = schedule.chunk_by(|a, b| plan.share_boot(a, b)).collect();
    assert_eq!(
        (boots.len(), plan.boots_per_round(), plan.trials()),
        (40, 2, 120)
    );
    for boot in &boots {
        assert_eq!(
            boot.iter().map(|slot| slot.step).collect::<Vec<_>>(),
            [0, 1, 2]
        );
    }
    let native_first = boots
        .chunks(2)
        .filter(|round| round[0][0].machine == Machine::NATIVE)
        .count();
    assert!(
        (4..=16).contains(&native_first),
        "machines are still in random order: {native_first}"
    );
    // Without a shared boot each slot is one.
    let apart = Plan {
        study: Study::Scale(SizeRange::new("disk.depth", vec![1, 4, 32])),
        ..plan
    };
    assert_eq!(
        apart
            .schedule()
            .chunk_by(|a, b| apart.share_boot(a, b))
            .count(),
        120
    );
}

/// A comparison on two machines, of these variants with one option of `disk` each.
fn of_block_sizes(sizes: &[&str]) -> Plan {
    let variant = |size: &&str| {
        format!("[[variant]]\nname = \"{size}\"\nset = {{ \"disk.block-size\" = \"{size}\" }}\n")
    };
    let variants: String = sizes.iter().map(variant).collect();
    let text = format!(
        "rounds = 200\nmachines = [\"tcg\", \"kvm\"]\nprobes = [\"none\", \"none\", \"none\"]\n[compare]\nmin-effect = 0.02\n\
         one-boot = true\n{variants}[[workload]]\nname = \"disk\"\noptions = {{ mode = \"random\" }}\n[[workload]]\nname = \"cpu\"\n"
    );
    Plan::from_toml(&text).unwrap()
}

#[test]
fn variants_that_share_a_boot_take_turns_in_a_random_order_and_its_reverse() {
    for (sizes, orders) in [(&["4K", "8K"][..], 2), (&["4K", "8K", "16K"], 6)] {
        let plan = of_block_sizes(sizes);
        assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
        let schedule = plan.schedule();
        let boots: Vec<_> = schedule.chunk_by(|a, b| plan.share_boot(a, b)).collect();
        assert_eq!(
            (boots.len(), plan.boots_per_round()),
            (400, 2),
            "one a round and machine"
        );
        let mut seen = std::collections::BTreeMap::new();
        for boot in &boots {
            let order: Vec<usize> = boot.iter().map(|slot| slot.variant).collect();
            let half = sizes.len();
            assert_eq!(order.len(), 2 * half);
            assert!(
                order[..half].iter().eq(order[half..].iter().rev()),
                "A B B A: {order:?}"
            );
            assert!(boot.iter().map(|slot| slot.turn).eq(0..2 * half as u32));
            assert!(boot.iter().all(|slot| plan.booted_variant(*slot) == 0));
            *seen.entry(order).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), orders);
        let even = 400 / orders;
        assert!(
            seen.values().all(|n| (even / 2..even * 2).contains(n)),
            "each order as often: {seen:?}"
        );
        let tcg_first = boots
            .chunks(2)
            .filter(|round| round[0][0].machine == Machine::TCG)
            .count();
        assert!(
            (70..=130).contains(&tcg_first),
            "machines are in random order: {tcg_first}"
        );
        // Two turns of three repeats of two workloads on two machines.
        assert_eq!(plan.trials_per_round(), 2 * 3 * 2 * 2 * sizes.len() as u64);
    }
    let apart = of_block_sizes(&["4K", "8K"]);
    let Study::Compare(spec) = &apart.study else {
        unreachable!()
    };
    let settings = Compare {
        one_boot: false,
        ..spec.settings
    };
    let apart = Plan {
        study: Study::Compare(WithCommand {
            settings,
            command: None,
        }),
        ..apart
    };
    assert!(
        !apart.to_toml().unwrap().contains("one-boot"),
        "as plans of older recordings have it"
    );
    let schedule = apart.schedule();
    assert_eq!(
        schedule.chunk_by(|a, b| apart.share_boot(a, b)).count(),
        800
    );
    assert!(
        schedule
            .iter()
            .all(|slot| slot.turn == 0 && apart.booted_variant(*slot) == slot.variant)
    );
    assert_eq!(
        (apart.boots_per_round(), apart.trials_per_round()),
        (4, 2 * 3 * 2 * 2)
    );
}

#[test]
fn each_variant_runs_its_own_options() {
    let plan = of_block_sizes(&["4K", "8K"]);
    let options =
        |variant: usize, workload: usize| plan.workloads_of(variant)[workload].options.clone();
    assert_eq!(
        (
            options(0, 0)["block-size"].as_str(),
            options(1, 0)["block-size"].as_str()
        ),
        ("4K", "8K")
    );
    assert_eq!(
        (options(1, 0)["mode"].as_str(), options(1, 1).is_empty()),
        ("random", true)
    );
    assert!(
        plan.variants
            .iter()
            .all(|variant| variant.disk().is_empty()),
        "no property of QEMU's device"
    );
}

#[test]
fn variants_share_a_boot_only_where_a_running_guest_can_change_all_they_differ_in() {
    let text = of_block_sizes(&["4K", "8K"]).to_toml().unwrap();
    let refused = |from: &str, to: &str, why: &str| {
        assert!(text.contains(from), "{from}: {text}");
        let error = Plan::from_toml(&text.replacen(from, to, 1))
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{error}");
    };
    let own = "\"disk.block-size\" = \"8K\"";
    for key in ["aio", "cpus", "kernel-arg.idle", "host.thp"] {
        let value = if key == "cpus" { "2" } else { "native" };
        refused(
            own,
            &format!("{own}\n\"{key}\" = \"{value}\""),
            &format!("differ in {key}, which a running guest"),
        );
    }
    let of_queue = text.replacen(
        own,
        &format!("{own}\n\"block-queue.scheduler\" = \"none\""),
        1,
    );
    assert_eq!(
        Plan::from_toml(&of_queue).unwrap().variants[1].get("block-queue.scheduler"),
        Some("none")
    );
    refused(
        "\"disk.block-size\" = \"4K\"",
        "\"net-rr.size\" = \"4\"",
        "net-rr, which the plan does not run",
    );
    refused("\"kvm\"", "\"native\"", "in a comparison of guests alone");
    let apart = Plan {
        study: Study::Overhead,
        ..of_block_sizes(&["4K", "8K"])
    };
    assert!(
        apart
            .check()
            .unwrap_err()
            .to_string()
            .contains("in a comparison of guests alone")
    );
}

#[test]
fn each_step_is_a_plan_and_a_turn_of_its_own() {
    let plan = growing("disk.depth", &[1, 4, 32]).unwrap();
    assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
    let top = &plan.at_step(2).workloads[0].options;
    assert_eq!(
        (top["depth"].as_str(), top["mode"].as_str()),
        ("32", "random")
    );
    assert_eq!((plan.trials_per_round(), plan.schedule().len()), (6, 12));
    for round in plan.schedule().chunks(6) {
        let mut steps: Vec<_> = round.iter().map(|t| (t.machine, t.step)).collect();
        assert!(!steps.is_sorted(), "the order is drawn: {steps:?}");
        steps.sort_unstable();
        steps.dedup();
        assert_eq!(steps.len(), 6);
    }
    // A budget ends the first round before a size that is too large, if the smaller ones come before it.
    let range = SizeRange {
        budget_s: Some(60),
        ..plan.range().unwrap().clone()
    };
    let bounded = Plan {
        study: Study::Scale(range),
        ..plan
    }
    .schedule();
    assert!(
        bounded[..6].is_sorted_by_key(|t| t.step) && !bounded[6..].is_sorted_by_key(|t| t.step)
    );
    let cpus = growing("guest.cpus", &[1, 2, 4]).unwrap();
    assert!(
        cpus.to_toml().is_ok_and(|text| !text.contains("one_boot")),
        "as plans of older recordings have it"
    );
    let text = cpus
        .to_toml()
        .unwrap()
        .replace("[range]", "[range]\none_boot = true");
    assert!(
        Plan::from_toml(&text)
            .unwrap_err()
            .to_string()
            .contains("cannot grow while the guest runs")
    );
    assert_eq!(cpus.at_step(1).guest.cpus, 2);
    let text = cpus
        .to_toml()
        .unwrap()
        .replace("guest.cpus", "guest.disks")
        .replace("\"native\", ", "");
    let disks = Plan::from_toml(&text).unwrap();
    assert_eq!(
        (disks.at_step(2).guest.disks, disks.at_step(2).guest.cpus),
        (4, 1)
    );
    let too_many = Plan {
        study: Study::Scale(SizeRange::new("guest.memory-regions", vec![1, 2, 4000])),
        ..disks
    };
    assert!(
        too_many
            .check()
            .unwrap_err()
            .to_string()
            .contains("0 to 960")
    );
}

#[test]
fn what_does_not_rise_or_does_not_grow_is_refused() {
    for (option, steps, why) in [
        ("disk.depth", &[1, 2][..], "2 steps"),
        ("disk.depth", &[4], "1 steps"),
        ("disk.depth", &[1, 4, 4], "does not rise"),
        ("disk.depth", &[8, 4, 2], "does not rise"),
        ("disk.depth", &[0, 1, 2], "does not rise"),
        ("cpu.max-prime", &[1, 2, 4], "does not run"),
        ("guest.kernel", &[1, 2, 4], "cannot be varied"),
        ("depth", &[1, 2, 4], "cannot be varied"),
        ("guest.cpus", &[1, 2, 4000], "guest.cpus"),
        ("guest.disks", &[1, 2, 4], "leave other machines out"),
    ] {
        let error = growing(option, steps).unwrap_err().to_string();
        assert!(error.contains(why), "{option} {steps:?}: {error}");
    }
}

#[test]
fn a_command_stands_in_a_plan_with_its_workload_alone() {
    let text = "rounds = 1\nmachines = [\"native\"]\n[command]\nargv = [\"make\", \"-j2\"]\ndirectory = \"/x\"\n\
                [[workload]]\nname = \"exec\"\n";
    let plan = Plan::from_toml(text).unwrap();
    assert_eq!(plan.command().unwrap().argv, ["make", "-j2"]);
    assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan));
    let refused = |from: &str, to: &str, said: &str| {
        let error = Plan::from_toml(&text.replace(from, to))
            .unwrap_err()
            .to_string();
        assert!(error.contains(said), "{error}");
    };
    refused(
        "[command]\nargv = [\"make\", \"-j2\"]\ndirectory = \"/x\"\n",
        "",
        "vmtax exec",
    );
    refused("name = \"exec\"", "name = \"cpu\"", "exec alone");
    refused("\"/x\"", "\"x\"", "absolute");
    refused("[\"make\", \"-j2\"]", "[]", "empty");
    refused("\"native\"", "\"micro-tcg\"", "micro-guest");
    let metric = "[[command.metric]]\nname = \"x\"\npattern = \"x=(.*)\"\nbetter = \"lower\"\n";
    let with = text.replace("[[workload]]", &format!("{metric}[[workload]]"));
    let plan = Plan::from_toml(&with).unwrap();
    assert_eq!(
        plan.command().unwrap().metrics[0].better,
        Some(crate::Better::Lower)
    );
    assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan));
    refused(
        "[[workload]]",
        &format!("{metric}{metric}[[workload]]"),
        "twice",
    );
}

#[test]
fn what_guests_have_besides_is_checked() {
    let check_with = |change: fn(&mut CommandSpec)| {
        let mut command = CommandSpec::new(vec!["x".into()], "/".into());
        change(&mut command);
        command.check()
    };
    assert!(check_with(|c| c.write = vec!["/home/x/out".into()]).is_ok());
    for bad in ["/", "out", "/proc/x", "/run", "/home/../etc"] {
        let mut command = CommandSpec::new(vec!["x".into()], "/".into());
        command.write.push(bad.into());
        assert!(command.check().is_err(), "{bad}");
    }
    assert!(
        check_with(|c| c.forward = vec![Forward {
            host: 80,
            guest: 80
        }])
        .is_err()
    );
    assert!(
        check_with(|c| c.scratch_mib = Some(64)).is_ok()
            && check_with(|c| c.scratch_mib = Some(63)).is_err()
    );
    assert!(check_with(|c| c.prepare = Some("a\0".into())).is_err());
    assert_eq!(
        "8080:80".parse(),
        Ok(Forward {
            host: 8080,
            guest: 80
        })
    );
    for bad in ["80", "0:80", "80:x", "80:99999"] {
        assert!(bad.parse::<Forward>().is_err(), "{bad}");
    }
    let text = "rounds = 1\nmachines = [\"tcg\"]\n[command]\nargv = [\"x\"]\ndirectory = \"/x\"\nprepare = \"a\"\nscratch-mib = 64\nlayers = true\n\
                write = [\"/x\"]\nnet = \"user\"\nforward = [\"8080:80\"]\n[[workload]]\nname = \"exec\"\n";
    let plan = Plan::from_toml(text).unwrap();
    assert_eq!(Plan::from_toml(&plan.to_toml().unwrap()), Ok(plan.clone()));
    // One round, and the guest once more for each kind of its devices.
    let slots: Vec<(u32, bool)> = plan
        .schedule()
        .iter()
        .map(|t| (t.round, plan.is_after_rounds(*t)))
        .collect();
    assert_eq!(
        (slots, plan.trials(), plan.rounds_with_observation()),
        (vec![(0, false), (1, true), (2, true)], 3, 3)
    );
    let probes: Vec<&[Probes]> = plan
        .schedule()
        .iter()
        .map(|slot| plan.probes_in(*slot))
        .collect();
    assert_eq!(
        probes,
        [[Probes::None], [Probes::Layers], [Probes::Network]]
    );
    let without =
        Plan::from_toml(&text.replace("net = \"user\"\nforward = [\"8080:80\"]\n", "")).unwrap();
    assert_eq!(
        (without.trials(), without.rounds_with_observation()),
        (2, 2)
    );
    let refused = |from: &str, to: &str| {
        Plan::from_toml(&text.replace(from, to))
            .unwrap_err()
            .to_string()
    };
    assert!(refused("[\"tcg\"]", "[\"native\"]").contains("natively there is nothing"));
    assert!(refused("scratch-mib = 64\n", "").contains("scratch-mib"));
}

/// Study of a plan from before plans named theirs: it follows from the plan's content.
#[test]
fn a_plan_that_names_no_study_is_of_what_it_holds() {
    let plan = |tables: &str, workload: &str| {
        let text = format!(
            "rounds = 1\nmachines = [\"native\", \"tcg\"]\n{tables}\n[[workload]]\nname = \"{workload}\"\n"
        );
        Plan::from_toml(&text).map_err(|e| e.to_string())
    };
    let compare = "[compare]\nmin-effect = 0.02";
    let range = "[range]\noption = \"guest.cpus\"\nsteps = [1, 2, 4]";
    let command = "[command]\nargv = [\"x\"]\ndirectory = \"/\"";
    let share = "[tree]\nfiles = 10\n[[variant]]\nset = { share = \"9p\" }";
    let layers = "probes = [\"none\", \"layers\"]";
    let profile = "[profile]\nhz = 99\nwall-hz = 19\nevents-ms = 1000\nstack = 12288\ntime-ms = 500\nsymbols = \"/q\"";
    for (tables, workload, name) in [
        ("", "cpu", "overhead"),
        (layers, "disk", "layers"),
        (command, "exec", "exec"),
        (compare, "cpu", "compare"),
        (&format!("{layers}\n{compare}"), "disk", "compare"),
        (range, "cpu", "scale"),
        (&format!("{range}\n{share}"), "open-fids", "scale"),
        (share, "tree", "share"),
        ("", "exits", "exits"),
        ("", "guest-antipatterns", "guest-antipatterns"),
        (profile, "disk", "profile"),
        (&format!("{profile}\n{command}"), "exec", "profile"),
    ] {
        let concluded = plan(tables, workload).unwrap();
        assert_eq!(concluded.study.name(), name, "{tables}");
        assert_eq!(
            plan(&format!("study = \"{name}\"\n{tables}"), workload).unwrap(),
            concluded
        );
        assert_eq!(
            Plan::from_toml(&concluded.to_toml().unwrap()),
            Ok(concluded)
        );
    }
    for (tables, workload, why) in [
        (
            format!("{compare}\n{range}"),
            "cpu",
            "'compare' has no table [range]",
        ),
        (
            format!("{range}\n{command}"),
            "exec",
            "'scale' has no table [command]",
        ),
        (
            format!("study = \"overhead\"\n{compare}"),
            "cpu",
            "'overhead' has no table [compare]",
        ),
        (
            "study = \"scale\"".to_owned(),
            "cpu",
            "takes a table [range]",
        ),
        (
            "study = \"layers\"".to_owned(),
            "disk",
            "add \"layers\" to probes",
        ),
        ("study = \"share\"".to_owned(), "tree", "table [tree]"),
        ("study = \"exits\"".to_owned(), "cpu", "the workload exits"),
        (
            "study = \"guest-antipatterns\"".to_owned(),
            "cpu",
            "the workload guest-antipatterns",
        ),
        (
            "study = \"other\"".to_owned(),
            "cpu",
            "unknown study 'other'",
        ),
        (
            "study = \"profile\"".to_owned(),
            "cpu",
            "takes a table [profile]",
        ),
        (
            format!("{profile}\n{range}"),
            "cpu",
            "'profile' has no table [range]",
        ),
        (
            format!("{profile}\npid = 1"),
            "cpu",
            "leave machines and workload empty",
        ),
        ("[profile]\nhz = 99".to_owned(), "cpu", "wall-hz"),
    ] {
        let error = plan(&tables, workload).unwrap_err();
        assert!(error.contains(why), "{tables}: {error}");
    }
    let attached = format!("rounds = 1\nmachines = []\nworkload = []\n{profile}\npid = 1\n");
    let attached = Plan::from_toml(&attached).unwrap();
    assert_eq!(attached.running_vm().map(|vm| vm.pid), Some(1));
    assert_eq!(Plan::from_toml(&attached.to_toml().unwrap()), Ok(attached));
}

#[test]
fn an_image_has_no_option_that_names_another_file() {
    let plan = |option: &str| {
        let text = format!(
            "rounds = 1\nmachines = [\"tcg\"]\n[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\nset = {{ format = \"qcow2\", \"{option}\" = \"4096\" }}\n\
             [[workload]]\nname = \"disk\"\n"
        );
        Plan::from_toml(&text).map_err(|e| e.to_string())
    };
    assert!(
        plan("image.cluster_size").is_ok(),
        "{:?}",
        plan("image.cluster_size")
    );
    for option in ["image.data_file", "image.backing_file"] {
        assert!(
            plan(option)
                .unwrap_err()
                .contains("choose from cluster_size"),
            "{option}"
        );
    }
}

use super::*;
use proptest::prelude::*;

/// Texts with a secret in each form; `{}` is its place. What is behind `|` must stay.
const FORMS: [&str; 78] = [
    "-drive file=rbd:pool/vm-a:id=admin:key={}:mon_host=192.0.2.1,format=raw|rbd:pool/vm-a",
    "-drive 'file=rbd:pool/vm-a:mon_host=a\\:6789\\;b\\:6789:key={}',if=virtio|if=virtio",
    r#"-blockdev {"driver":"rbd","pool":"p","image":"i","key":"{}","node-name":"n"}|"image":"i""#,
    "-iscsi user=me,password={},initiator-name=iqn.x|initiator-name=iqn.x",
    "-spice port=5900,password={},addr=127.0.0.1|addr=127.0.0.1",
    "-vnc :0,password={}|-vnc :0",
    "-object secret,id=sec0,data={},format=base64|id=sec0",
    r#"-object {"qom-type":"secret","id":"s","data":"{}","keyid":"masterKey0","iv":"AAEC"}|masterKey0"#,
    r#"'{"data": "{}", "qom-type": "secret"}'|qom-type"#,
    r#"{"driver":"ssh","user":"bob","password":"{}","path":"/images/a.raw"}|/images/a.raw"#,
    "-drive file=nbd://bob:{}@192.0.2.1:10809/disk,if=virtio|192.0.2.1:10809/disk",
    "-drive file=https://{}:x@example.com/a.qcow2,format=qcow2|example.com/a.qcow2",
    "-drive file=ftp://u:{}@h/a.img|h/a.img",
    "-drive file=ssh://u:{}@h:22/a.img?host_key_check=no|host_key_check=no",
    "-drive file=iscsi://u%{}@h/iqn.x/1|iqn.x/1",
    "https:\\/\\/u:{}@h\\/a|h\\/a",
    "https://h/a.qcow2?token={}&x=1|x=1",
    "https://h/a.qcow2?sv=2020&sig={}|sv=2020",
    "https://h/a?X-Amz-Expires=60&X-Amz-Signature={}&x=y|X-Amz-Expires=60",
    "https://h/a?AWSAccessKeyId={}&Expires=9|Expires=9",
    "https://h/a#access_token={}|h/a",
    "https://h/cb?key={}|h/cb",
    "https://h/a?u=https://x/b&sig={}|x/b",
    "<password>{<!-- <token>{}</token> --></password>|</password>",
    "MY_TOKEN={} qemu|qemu",
    "env DB_PASSWORD={} qemu-system-x86_64|qemu-system-x86_64",
    "PGPASSWORD={} psql -h db|psql -h db",
    "MYSQL_PWD='{}' mysql -u root|mysql -u root",
    "AWS_SECRET_ACCESS_KEY=\"{}\" aws s3 ls|aws s3 ls",
    "STRIPE_KEY={} ./run|./run",
    "ANSIBLE_VAULT_PASS={} ./run|./run",
    "curl -H 'Authorization: Bearer {}' https://h/x|https://h/x",
    "curl -H \"Authorization: Basic {}\" https://h/x|https://h/x",
    "curl -H 'X-Auth-Token: {}' https://h/x|https://h/x",
    "curl --header 'PRIVATE-TOKEN: {}' h|curl",
    "curl -H 'Cookie: a=b; session={}' h|curl",
    "curl -u bob:{} https://h/x|https://h/x",
    "curl --user 'bob:{}' https://h/x|https://h/x",
    "curl -ubob:{} https://h/x|https://h/x",
    "curl --oauth2-bearer {} --pass x h| h",
    "-incoming 'exec:curl -u bob:{} https://h/x'|https://h/x",
    "sshpass -p {} ssh host|ssh host",
    "mysql -p{} -h db|-h db",
    "redis-cli -a {} ping|ping",
    "openssl enc -pass pass:{} -in f|-in f",
    "tool --password {} run|run",
    "tool --api-key={} run|run",
    "tool --token \"{}\" run|run",
    "-fw_cfg name=opt/com.example/x,string={}|opt/com.example/x",
    "-smbios type=11,value=io.systemd.credential:root={}|type=11",
    "-smbios 'type=11,value={}'|type=11",
    "#cloud-config\npassword: {}\nssh_pwauth: true\n|ssh_pwauth: true",
    "chpasswd:\n  list: |\n    root:{}\n    bob:x\nruncmd: []|runcmd: []",
    "users:\n  - {name: bob, plain_text_passwd: {}}|name: bob",
    "cipassword: {}\ncores: 2|cores: 2",
    "args: -spice password={},port=1\ncores: 2|cores: 2",
    "<graphics type='vnc' port='-1' passwd='{}'/>|port='-1'",
    "<graphics type=\"vnc\" passwd = \"{}\" port=\"-1\"/>|port=\"-1\"",
    "<cookie name='session'>{}</cookie>|</cookie>",
    "<password>\n  {}\n</password>|</password>",
    "<qemu:env name='VAULT_TOKEN' value='{}'/>|VAULT_TOKEN",
    "<qemu:arg value='-spice'/><qemu:arg value='password={},port=1'/>|port=1",
    "<qemu:arg value='{&quot;password&quot;:&quot;{}&quot;,&quot;x&quot;:1}'/>|&quot;x&quot;:1",
    "<entry name='opt/com.example/token'>{}</entry>|opt/com.example",
    "<oemStrings><entry>{}</entry></oemStrings>|oemStrings",
    "<cmdline>root=/dev/vda rd.iscsi.password={} quiet</cmdline>|quiet",
    "root=/dev/vda netroot=iscsi:bob:{}@192.0.2.1::3260::iqn.x ro|192.0.2.1",
    "root=/dev/vda systemd.set_credential=passwd.plaintext-password.root:{} ro|root=/dev/vda",
    "[global]\nhttp_pass={}\nioengine=http\n|ioengine=http",
    "[global]\nhttp_s3_key={}\nioengine=http\n|ioengine=http",
    "\"job options\" : {\"http_s3_key\" : \"{}\", \"rw\" : \"read\"}|\"rw\" : \"read\"",
    r#"{"file":"json:{\"driver\":\"ssh\",\"password\":\"{}\",\"path\":\"/p\"}","x":1}|"x":1"#,
    "mount -t cifs -o username=u,password={},ro //h/s /m|//h/s",
    "qemu: -drive file=rbd:p/i:key={}: error opening|rbd:p/i",
    "ipmitool -H h --session-token {} power|power",
    "{\"Authorization\": \"Bearer {}\", \"x\": 1}|\"x\": 1",
    "proxy = http://bob:{}@proxy:3128/|@proxy:3128/",
    "password={}|password=",
];

/// Texts without a secret, which stay as they are.
const HARMLESS: [&str; 40] = [
    "-blockdev driver=rbd,pool=p,image=i,key-secret=k,password-secret=s",
    r#"-object {"qom-type":"secret","id":"masterKey0","format":"raw","file":"/var/lib/libvirt/key.aes"}"#,
    "-spice port=0,disable-ticketing=on -vnc :0,password=on",
    "-drive file=/images/token.qcow2,format=qcow2,cache=none",
    "-drive file=nbd://192.0.2.1:10809/disk",
    "-device virtio-blk-pci,drive=d,serial=secret-disk",
    "-netdev tap,id=n,fd=3 -uuid c7a5fdbd-edaf-9455-926a-d65c16db1809",
    "-name guest=password-server,debug-threads=on",
    "the password of the guest is wrong",
    "PWD=/home/bob OLDPWD=/tmp PATH=/usr/bin",
    "sort -k 2 --key=3 --sort-key=name",
    "perf kvm stat report --key=time",
    "curl -H \"Authorization: Bearer $TOKEN\" https://h/x",
    "curl -u \"$USER:$PASSWORD\" https://h/x",
    "curl -u bob https://h/x",
    "docker run -u 1000:1000 image",
    "tool --password-file /etc/pw --token-file=/x",
    "MY_TOKEN=$OTHER ./run --password ${PASS}",
    "https://$USER:$PASS@h/x",
    "https://example.com/a.qcow2?size=4096&x=1",
    "ssh://h:22/a.img?host_key_check=no",
    "<auth username='bob'><secret type='ceph' uuid='2ec115d7-3a88-3ceb-bc12-0ac909a6fd87'/></auth>",
    "<secret ephemeral='no' private='yes'>\n  <uuid>2ec115d7</uuid>\n</secret>",
    "<encryption format='luks'><secret type='passphrase' usage='/images/a'/></encryption>",
    "<graphics type='spice' passwdValidTo='2026-01-01T00:00:00'/>",
    "<entry name='vendor'>LENOVO</entry>",
    "<metadata><x:app key='name' value='web'/></metadata>",
    "{\"tokens\": 5, \"max_tokens\": 9, \"password\": null, \"secret\": false}",
    "scsi0: local-lvm:vm-1-disk-0,cache=writethrough,iops_rd=300",
    "net0: virtio=BC:24:11:00:00:01,bridge=vmbr0",
    "smbios1: uuid=2ec115d7-3a88-3ceb-bc12-0ac909a6fd87",
    "-global driver=cfi.pflash01,property=secure,value=on",
    "-device e1000,netdev=n,mac=52:54:00:12:34:56",
    "read: IOPS=31.2k, BW=122MiB/s (128MB/s)(7313MiB/60001msec)",
    "clat (usec): min=60, max=5000, avg=95.20, stdev=10.1",
    "public_key=ssh-ed25519 sort_key=1 PRIMARY_KEY=id",
    "qemu+unix:///system?socket=/run/libvirt/libvirt-sock",
    "EXTERNAL_INTERRUPT 200 1.2% 0.01% 0.5us 20us 1.3us",
    "price is $6 or $y, x$5$y",
    "mount -o credentials=/etc/cifs.pw //h/s /m",
];

/// Values of several kinds, none of which is part of a form.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "[Q-Z][a-z0-9]{7,20}9",
        "[Q-Z][A-Za-z0-9+/]{37}8==",
        "[Q-Z]%2F[a-z]{6}[0-9]{3}[.~_-]"
    ]
}

proptest! {
    #[test]
    fn a_secret_is_removed_in_each_form(secret in secret(), form in 0..FORMS.len()) {
        let (form, kept) = FORMS[form].rsplit_once('|').unwrap();
        let secret = match form {
            // Where these letters end a value.
            form if form.contains("://") || form.contains(":\\/") || form.contains("iscsi:") => secret.replace(['/', '+', '='], "x"),
            form if form.contains("-ubob") || form.contains("mysql -p") => secret.replace('=', "x"),
            _ => secret,
        };
        let text = form.replacen("{}", &secret, 1);
        let cleared = without_secrets(&text);
        prop_assert!(!cleared.contains(&secret), "{text}\n{cleared}");
        prop_assert!(cleared.contains(kept) && cleared.contains(SECRET_REMOVED), "{text}\n{cleared}");
        prop_assert_eq!(&without_secrets(&cleared), &cleared, "once is enough");
        let words: Vec<String> = text.split(' ').map(|word| word.replace(['\'', '"'], "")).collect();
        // A header or a value of YAML is one word of a command line.
        if !form.contains(": ") && !form.contains('<') && !form.contains('{') {
            let cleared = words_without_secrets(&words).join(" ");
            prop_assert!(!cleared.contains(&secret), "{words:?}\n{cleared}");
        }
    }

    #[test]
    fn a_secret_with_blanks_and_quotes_is_removed_from_a_word(secret in "Q[a-z '\"&;]{3,12}[a-z]9") {
        for word in ["password=", "port=1,password=", "Authorization: Bearer "] {
            let cleared = words_without_secrets(&["q".to_owned(), format!("{word}{secret}")]).join(" ");
            prop_assert!(!cleared.contains(&secret[..4]) && !cleared.ends_with(&secret[secret.len() - 4..]), "{word}{secret}: {cleared}");
        }
        let cleared = words_without_secrets(&["tool".to_owned(), "--token".to_owned(), secret.clone()]);
        prop_assert_eq!(&cleared[2], SECRET_REMOVED);
    }

    #[test]
    fn any_text_is_survived(text in "[-a-z0-9 =:,/@?&<>'\"\\\\\n$.{}äß]{0,120}") {
        let cleared = without_secrets(&text).into_owned();
        prop_assert_eq!(without_secrets(&cleared).into_owned(), cleared);
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        prop_assert_eq!(words_without_secrets(&words).len(), words.len());
    }

    #[test]
    fn json_stays_json(key in "(password|token|key|data|secret|x)", value in "[ -~äß]{0,20}", number in any::<i32>()) {
        let json = serde_json::json!({ "qom-type": "secret", key: value, "token": number, "n": { "password": value } });
        for text in [json.to_string(), serde_json::json!({ "file": format!("json:{json}") }).to_string()] {
            let cleared = without_secrets(&text);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&cleared).is_ok(), "{text}\n{cleared}");
        }
    }
}

#[test]
fn a_text_without_a_secret_stays_as_it_is() {
    for text in HARMLESS {
        assert_eq!(without_secrets(text), text);
        let words: Vec<String> = text
            .split(' ')
            .map(|word| word.replace(['\'', '"'], ""))
            .collect();
        assert_eq!(words_without_secrets(&words), words);
    }
}

#[test]
fn a_domain_stays_xml() {
    let xml = "<domain>\n  <graphics type='vnc' passwd='s&gt;cret' port='1'/>\n  <graphics passwd=\"x\"/>\n<source><cookies>\n\
               <cookie name='a'>s&amp;x<!-- s --></cookie>\n<cookie name='b'><![CDATA[s]]></cookie>\n</cookies></source></domain>";
    let expected = "<domain>\n  <graphics type='vnc' passwd='SECRET-REMOVED' port='1'/>\n  <graphics passwd=\"SECRET-REMOVED\"/>\n\
                    <source><cookies>\n<cookie name='a'>SECRET-REMOVED</cookie>\n<cookie name='b'>SECRET-REMOVED</cookie>\n</cookies></source></domain>";
    assert_eq!(without_secrets(xml), expected);
    assert_eq!(without_secrets(expected), expected);
}

#[test]
fn keys_tokens_and_hashes_are_known_by_their_form() {
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\naC1rZXk\n-----END OPENSSH PRIVATE KEY-----\nrest";
    assert_eq!(
        without_secrets(key),
        format!(
            "-----BEGIN OPENSSH PRIVATE KEY-----{SECRET_REMOVED}-----END OPENSSH PRIVATE KEY-----\nrest"
        )
    );
    for secret in [
        "$6$rounds=5000$saltsalt$abcdefghijklmnopqrstuvwxyz0123456789./ABCDEFG",
        "$y$j9T$saltsaltsalt$abcdefghijklmnopqrstuvwxyz0123456789",
        "AQB1mFdkAAAAABAAl0Ixqk9RNkFpLzVwb0JRZg==",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ] {
        let text = format!("a {secret} b");
        assert_eq!(without_secrets(&text), format!("a {SECRET_REMOVED} b"));
    }
    assert_eq!(
        without_secrets("it is the bearer abcdefgh12345678x of it"),
        format!("it is the bearer {SECRET_REMOVED} of it")
    );
}

#[test]
fn long_texts_take_time_that_grows_with_their_length() {
    for part in [
        "password=",
        "password=$a ",
        "password: $a ",
        "key: a ",
        "key=",
        "$x$",
        "key=\"",
        "data=secret,",
        "://a:b",
        "<password>",
        "<a ",
        "'",
        "\"a 'b ",
        "$6$",
        "-----BEGIN PRIVATE KEY",
        "chpasswd:\n",
        "token:$a ",
        "://a?k=b&",
        "iscsi:a",
        "a:\\/\\/b",
        "<password><!--",
        "<password><!--x-->",
        "<password>{<!--<password>{-->",
        "://a?u=http:",
    ] {
        let text = part.repeat((64 << 10) / part.len());
        let before = on_cpu_ns();
        let _ = without_secrets(&text);
        let _ = words_without_secrets(&[text]);
        let blanks = " ".repeat(64 << 10);
        let _ = words_without_secrets(&[format!("{part}{blanks}b")]);
        let took = on_cpu_ns() - before;
        assert!(took < 3_000_000_000, "{part}: {took} ns");
    }
}

/// Time for which this thread has had a CPU, ns, whatever else the host does.
fn on_cpu_ns() -> u64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

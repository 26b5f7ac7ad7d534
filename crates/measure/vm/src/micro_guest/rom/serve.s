# User mode: orders from the mailbox, one after the other.

# The time stamp counter in rax, read after all that comes before it in the program has happened. Spoils rdx.
    .macro STAMP
    lfence
    rdtsc
    shlq $32, %rdx
    orq %rdx, %rax
    .endm

    .macro SET_STATE state
    movq CURRENT, %rax
    shlq $8, %rax
    orq $\state, %rax
    movq %rax, MAILBOX + STATE
    .endm

    .macro FAIL why
    movl $\why, %ebx
    jmp .Lfailed
    .endm

    .macro CONFIG_SELECT                # register eax of PCI configuration space; its data is at port dx then
    movl $0xcf8, %edx
    outl %eax, %dx
    movl $0xcfc, %edx
    .endm

.Lserve:
    movl $0x80000860, %eax              # PIIX3: every PCI interrupt line is interrupt 11 of the PIC
    CONFIG_SELECT
    movl $0x0b0b0b0b, %eax
    outl %eax, %dx
    call .Lapic_on

    movq MAILBOX + ORDER, %rax
    movq %rax, CURRENT
    SET_STATE STATE_READY
    movabsq $MAGIC_VALUE, %rax
    movq %rax, MAILBOX + MAGIC

.Lnext_order:
    movl $USER_STACK, %esp
    movq CURRENT, %rbx
1:  pause
    movq MAILBOX + ORDER, %rax
    cmpq %rbx, %rax
    je 1b
    movq %rax, CURRENT
    movq $0, MAILBOX + COUNT
    movq $0, MAILBOX + FAILURE
    movq $0, MAILBOX + DETAIL
    SET_STATE STATE_RUNNING
    call .Lquiet
    movq MAILBOX + COMMAND, %rax
    leaq .Lping(%rip), %rbx
    cmpq $COMMAND_PING, %rax
    je 2f
    leaq .Lrun(%rip), %rbx
    cmpq $COMMAND_RUN, %rax
    je 2f
    leaq .Lexits(%rip), %rbx
    cmpq $COMMAND_EXITS, %rax
    je 2f
    leaq .Lantipatterns(%rip), %rbx
    cmpq $COMMAND_ANTIPATTERNS, %rax
    je 2f
    leaq .Lround_trips(%rip), %rbx
    cmpq $COMMAND_ROUND_TRIPS, %rax
    je 2f
    leaq .Lleave(%rip), %rbx
    cmpq $COMMAND_LEAVE, %rax
    je 2f
    FAIL FAILURE_UNKNOWN
2:  call *%rbx
    SET_STATE STATE_DONE
    jmp .Lnext_order

# Reason in ebx; the detail is written already.
.Lfailed:
    movq %rbx, MAILBOX + FAILURE
    SET_STATE STATE_FAILED
    jmp .Lnext_order

# What a failed order may have left: a request under way, an interrupt not acknowledged.
.Lquiet:
    PORT_OUT (DISK_PORTS + VIRTIO_STATUS), 0    # nothing answers before the first run
    PORT_OUT (NET_PORTS + VIRTIO_STATUS), 0
    PORT_OUT 0xa1, 0xff
    PORT_OUT 0x21, 0xff
    PORT_OUT 0xa0, 0x20
    PORT_OUT 0x20, 0x20
    movl $0x10000, APIC + APIC_LVT_TIMER
    movl $0, APIC + APIC_EOI
    movb $0, EVENT_SEEN
    ret

# Answers each new stamp of the host's with one of ours, until it is all ones. The host's cell begins with 0.
.Lping:
    xorl %ebx, %ebx
1:  movq MAILBOX + HOST_STAMP, %rcx
    cmpq %rbx, %rcx
    jne 2f
    pause
    jmp 1b
2:  cmpq $-1, %rcx
    je 3f
    movq %rcx, %rbx
    STAMP
    movq %rax, MAILBOX + GUEST_STAMP
    jmp 1b
3:  ret

# The local APIC takes interrupts, the PIC's too.
.Lapic_on:
    movl $(0x100 | VECTOR_SPURIOUS), APIC + APIC_SPURIOUS
    movl $0x700, APIC + APIC_LVT_LINT0
    ret

# Gives the PIIX4's power management its ports, which are wherever one puts them.
.Lpower_on:
    movl $0x80000b40, %eax
    CONFIG_SELECT
    movl $(POWER_PORTS | 1), %eax
    outl %eax, %dx
    movl $0x80000b80, %eax
    CONFIG_SELECT
    movl $1, %eax
    outb %al, %dx
    ret

# Powers the machine off.
.Lleave:
    SET_STATE STATE_DONE
    call .Lpower_on
    movl $(POWER_PORTS + 4), %edx
    movl $0x2000, %eax                  # soft off
    outw %ax, %dx
1:  pause
    jmp 1b

# Touches a table of rcx bytes, so that no page of it is new to the host while it is filled.
.Ltouch_table:
    movl $TABLE, %edi
    addq %rdi, %rcx
1:  movq $0, (%rdi)
    addq $4096, %rdi
    cmpq %rcx, %rdi
    jb 1b
    ret

# Waits until the event handler has run; fails when that takes longer than the order allows. Spoils rax, rcx, rdx, r11.
.Lwait_event:
    STAMP
    movq %rax, %r11
1:  movl $65536, %ecx
2:  cmpb $0, EVENT_SEEN
    jne 3f
    pause
    decl %ecx
    jnz 2b
    STAMP
    subq %r11, %rax
    cmpq MAILBOX + TIMEOUT, %rax
    jb 1b
    FAIL FAILURE_TIMEOUT
3:  movb $0, EVENT_SEEN
    ret

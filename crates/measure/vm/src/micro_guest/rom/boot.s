# From reset to user mode. Kernel mode is left as soon as may be and entered for single instructions only: some KVMs
# emulate it, at 0.6 us an instruction, while user code runs natively everywhere. For the same reason no vector
# register is touched, and nothing here depends on what a firmware would have done.

# Kernel memory, zeroed below.
    .set TABLES, 0x10000
    .set PML4, 0x10000
    .set PDPT, 0x11000
    .set PD_LOW, 0x12000                # 0 to 1 GiB: RAM
    .set PD_DEVICES, 0x13000            # 1 to 2 GiB: devices
    .set GDT, 0x14000                   # in RAM: ltr writes to it
    .set TSS, 0x15000                   # 104 bytes, then 8 KiB of I/O bitmap and its end mark
    .set TSS_LIMIT, 0x68 + 0x2000
    .set KERNEL_STACK, 0x19000          # grows down
    .set USER_STACK, 0x1a000
    .set VARIABLES, 0x1a000
    .set TABLES_END, 0x1b000

# Selectors.
    .set CODE32, 0x08
    .set CODE64, 0x10
    .set DATA, 0x18
    .set USER_DATA, 0x20 | 3
    .set USER_CODE, 0x28 | 3
    .set TASK, 0x30

# Variables. CURRENT: the order under way.
    .set CURRENT, VARIABLES
    .set EVENT_SEEN, VARIABLES + 64     # the event handler has run, and when
    .set EVENT_STAMP, VARIABLES + 72
    .set MISSED, VARIABLES + 80         # the timer fired before the CPU slept
    .set SCREEN, VARIABLES + 128        # stands for a text screen's memory
    .set LOCK, VARIABLES + 192

# Devices, at virtual addresses that fit an instruction's 31 bits. run.s places the disk; at NOWHERE_* nothing answers.
    .set APIC_PHYSICAL, 0xfee00000
    .set APIC, 0x40000000
    .set APIC_VERSION, 0x30
    .set APIC_EOI, 0xb0
    .set APIC_SPURIOUS, 0xf0
    .set APIC_ICR, 0x300
    .set APIC_LVT_TIMER, 0x320
    .set APIC_LVT_LINT0, 0x350
    .set APIC_TIMER_INITIAL, 0x380
    .set APIC_TIMER_CURRENT, 0x390
    .set APIC_TIMER_DIVIDE, 0x3e0
    .set DISK_PHYSICAL, 0xe0000000
    .set HPET_PHYSICAL, 0xfec00000      # the 2 MiB that it is in
    .set HPET, 0x40500000
    .set DISK_MSIX, 0x40200000
    .set CARD_OFFSET, 0x10000           # the network card, behind the disk
    .set NOWHERE_MEMORY, DISK_MSIX + 0x100000
    .set NOWHERE_PORT, 0x1234
    .set PIC_ELCR, 0x4d0                # edge or level of interrupts 0 to 7: the PIC's own, and harmless

# Vectors. User code's way to kernel mode is a division by zero, which no KVM takes an exit for by itself, and which is done again
# when it is lost: the emulators of some KVMs do not know `int n`, nor sysret, and forget an int3 that is under way when
# somebody reads the CPU's registers.
    .set VECTOR_GATE, 0
    .set GATE_CALL_BYTES, 6
    .macro GATE_CALL                    # changes no register
    divb .Lzero(%rip)
    .endm
    .set VECTOR_INTX, 0x2b              # interrupt 11 of the PIC
    .set VECTOR_PIC_SPURIOUS, 0x2f
    .set VECTOR_TIMER, VECTOR_EVENT + 1
    .set VECTOR_TICK, VECTOR_EVENT + 2
    .set VECTOR_SPURIOUS, 0x3f

    .macro PORT_OUT port, value
    movl $\port, %edx
    movl $\value, %eax
    outb %al, %dx
    .endm

    .macro WRITE_MSR number, value
    movl $\number, %ecx
    xorl %edx, %edx
    movl $\value, %eax
    wrmsr
    .endm

    .code16
    cli
    cld
    movw $(ROM >> 4), %ax
    movw %ax, %ds
    lgdtl .Lgdt_rom - vmtax_micro_rom
    movl %cr0, %eax
    orb $1, %al
    movl %eax, %cr0
    ljmpl $CODE32, $(ROM + .Lprotected - vmtax_micro_rom)

    .balign 8
.Lgdt:
    .quad 0
    .quad 0x00cf9b000000ffff            # CODE32
    .quad 0x00af9b000000ffff            # CODE64
    .quad 0x00cf93000000ffff            # DATA
    .quad 0x00cff3000000ffff            # USER_DATA
    .quad 0x00affb000000ffff            # USER_CODE
    .quad 0x0000890000000000 | (TSS << 16) | TSS_LIMIT
    .quad 0
    .set GDT_BYTES, 64
.Lgdt_rom:
    .word GDT_BYTES - 1
    .long ROM + .Lgdt - vmtax_micro_rom
.Lgdt_ram:
    .word GDT_BYTES - 1
    .quad GDT

    .code32
.Lprotected:
    movl $DATA, %eax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $TABLES, %edi
    movl $((TABLES_END - TABLES) / 4), %ecx
    xorl %eax, %eax
    rep stosl

    movl $(ROM + .Lgdt - vmtax_micro_rom), %esi
    movl $GDT, %edi
    movl $(GDT_BYTES / 4), %ecx
    rep movsl
    lgdtl ROM + .Lgdt_ram - vmtax_micro_rom

    # RAM is where its address says, 2 MiB a page, for user mode too; devices are uncached.
    movl $(PDPT | 7), PML4
    movl $(PD_LOW | 7), PDPT
    movl $(PD_DEVICES | 7), PDPT + 8
    movl $PD_LOW, %edi
    movl $0x87, %eax
1:  movl %eax, (%edi)
    addl $8, %edi
    addl $0x200000, %eax
    cmpl $RAM_BYTES, %eax
    jb 1b
    movl $(APIC_PHYSICAL | 0x9f), PD_DEVICES
    movl $(DISK_PHYSICAL | 0x9f), PD_DEVICES + 8
    movl $(HPET_PHYSICAL | 0x9f), PD_DEVICES + 16

    movl $0x20, %eax                    # CR4.PAE
    movl %eax, %cr4
    movl $PML4, %eax
    movl %eax, %cr3
    WRITE_MSR 0xc0000080, 0x100         # EFER: long mode
    movl $0x80000033, %eax              # CR0: paging, caches on
    movl %eax, %cr0
    ljmpl $CODE64, $(ROM + .Llong - vmtax_micro_rom)

    .code64
.Llong:
    movl $KERNEL_STACK, %esp
    movq $KERNEL_STACK, TSS + 4
    movw $0x68, TSS + 0x66              # the bitmap of zeros gives user mode every port
    movb $0xff, TSS + TSS_LIMIT
    movl $TASK, %eax
    ltr %ax
    lidt .Lidt_pointer(%rip)
    WRITE_MSR 0x2ff, 0x806              # MTRR: memory is write-back; after reset it is uncached

    # The PICs: vectors from 0x20 on, all masked (the PIT ticks after reset), interrupt 11 by level.
    PORT_OUT 0x20, 0x11
    PORT_OUT 0xa0, 0x11
    PORT_OUT 0x21, 0x20
    PORT_OUT 0xa1, 0x28
    PORT_OUT 0x21, 4
    PORT_OUT 0xa1, 2
    PORT_OUT 0x21, 1
    PORT_OUT 0xa1, 1
    PORT_OUT 0x21, 0xff
    PORT_OUT 0xa1, 0xff
    PORT_OUT 0x4d1, 0x08

    pushq $USER_DATA
    pushq $USER_STACK
    pushq $0x3202                       # IF; IOPL 3, with which a CPU need not look into the bitmap
    pushq $USER_CODE
    pushq $(ROM + .Lserve - vmtax_micro_rom)
    iretq

# nix run .#vmtax, nix profile install .
{
  description = "Measures the overhead of QEMU/KVM guests and shows which layer causes it";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      pkgs = nixpkgs.legacyPackages.x86_64-linux;
      workspace = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package;
      vmtax = pkgs.rustPlatform.buildRustPackage {
        pname = "vmtax";
        inherit (workspace) version;
        src = self;
        cargoLock.lockFile = ./Cargo.lock;
        cargoBuildFlags = [
          "--package"
          "vmtax"
        ];
        # .cargo/config.toml links the program statically: it is its guests' /init.
        buildInputs = [ pkgs.glibc.static ];
        # Names of functions stay (Cargo.toml).
        dontStrip = true;
        # They boot guests.
        doCheck = false;
        nativeBuildInputs = [ pkgs.installShellFiles ];
        postInstall = ''
          $out/bin/vmtax man man
          installManPage man/*
          installShellCompletion --cmd vmtax \
            --bash <($out/bin/vmtax completions bash) \
            --zsh <($out/bin/vmtax completions zsh) \
            --fish <($out/bin/vmtax completions fish)
          install -D -m 644 -t $out/share/doc/vmtax LICENSE-MIT LICENSE-APACHE THIRD-PARTY.md
        '';
        meta = {
          description = "Measures the overhead of QEMU/KVM guests and shows which layer causes it";
          homepage = workspace.repository;
          license = with nixpkgs.lib.licenses; [
            mit
            asl20
            cddl
          ];
          mainProgram = "vmtax";
          platforms = [ "x86_64-linux" ];
        };
      };
    in
    {
      packages.x86_64-linux = {
        inherit vmtax;
        default = vmtax;
      };
    };
}

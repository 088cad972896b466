# CI runs make check, make test and the rest of make test-all (.ci/run); CONTRIBUTING.md says more about each.
# Whatever go.work names is checked and tested, and so are the tools, a module apart.

.PHONY: all test test-rest test-all test-long test-mssql stress fuzz soak check bench report api docs fmt clean
all: check test

# make test SHORT=1 is for a developer before each commit: the fast tests, of the packages that have changed.
test: .bin/testtotals
	scripts/test $(if $(SHORT),short)

# After make test: what make test-all has more.
test-rest: .bin/testtotals .bin/transports
	scripts/test rest

test-all:
	$(MAKE) --no-print-directory --keep-going -j1 test test-rest

# It takes hours: for changes to these parts, and for the scheduled workflow.
test-long: .bin/testtotals
	scripts/test long
	$(MAKE) --no-print-directory soak SOAK=$(or $(SOAK),10m)
	$(MAKE) --no-print-directory stress COUNT=$(or $(COUNT),1)

# Every test 20 times on a machine that is too slow, or less: make stress COUNT=2 PACKAGES=./core.
stress: .bin/testtotals
	scripts/stress

# Every fuzz target for half a minute, or less: make fuzz FUZZTIME=5s PACKAGES=./core TESTS=^FuzzDecode.
fuzz:
	scripts/fuzz

# It needs a Microsoft SQL Server, which REPRISE_TEST_MSSQL_URL names.
test-mssql: .bin/testtotals
	scripts/test-mssql

# It takes an hour, or SOAK=5m. TRANSPORT names one, or several by a pattern: make soak SOAK=5m TRANSPORT='postgres-*'.
soak:
	scripts/servers
	go run ./soak -for $(or $(SOAK),1h) -transport '$(or $(TRANSPORT),all)'

check: format lint tidy alone imports surface snippets links words paths scripts workflows tsql vulnerabilities

bench:
	go run -C bench . -scenario $(or $(SCENARIO),all)

# Runs the conformance suite on every adapter and rewrites the tables that compare them.
report: .bin/transports
	scripts/report

# Records the exported API in api/, and prints how many items each public package has; make api TYPE=core.Config: how many
# fields a type has.
api: .bin/api
	.bin/api $(or $(TYPE),-w)

# Copies the code that the documentation shows from where it is compiled and tested.
docs: .bin/snippets
	.bin/snippets -w

fmt: .bin/goimports
	$(goimports) -w .

clean:
	rm -rf .bin

# The parts of check. Each can be run alone; make --keep-going check runs all of them whatever fails.
.PHONY: format lint tidy alone imports surface snippets links words paths scripts workflows tsql vulnerabilities

# gofmt's formatting, and imports in groups.
goimports = .bin/goimports -local github.com/reprise-go/reprise
format: .bin/goimports
	$(goimports) -d . | (! grep .)

# go vet and staticcheck are part of it.
lint: .bin/golangci-lint
	scripts/lint

tidy:
	scripts/each-module go mod tidy -diff

# The workspace hides what a module lacks that is used alone. What needs a build tag is compiled by nothing else.
alone:
	scripts/alone
	go vet -race -tags=mssql ./transport/sqlserver

imports: .bin/imports
	.bin/imports

# Each change of the exported API is a change of api/.
surface: .bin/api
	.bin/api

snippets: .bin/snippets
	.bin/snippets

links: .bin/links
	.bin/links

words: .bin/words
	.bin/words

# A path of somebody's machine helps nobody else.
paths:
	git grep --untracked -nIE '(^|[^[:alnum:]_.-])/(home|root|work|Users)/'; test $$? -eq 1

scripts:
	for script in .ci/run scripts/*; do bash -n "$$script" || exit; done

# GitHub reads them only when they are there. This tool does not go together with the dependencies of those in tools/go.mod.
workflows:
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

tsql:
	scripts/tsql

vulnerabilities: .bin/govulncheck
	scripts/vulnerabilities

# Tools are built from the versions in tools/go.mod. The go command knows when one is up to date, so it is always asked.
.PHONY: FORCE
.bin/golangci-lint: FORCE
	GOWORK=off go build -C tools -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
.bin/goimports: FORCE
	GOWORK=off go build -C tools -o ../$@ golang.org/x/tools/cmd/goimports
.bin/govulncheck: FORCE
	GOWORK=off go build -C tools -o ../$@ golang.org/x/vuln/cmd/govulncheck
.bin/api .bin/imports .bin/links .bin/snippets .bin/testtotals .bin/transports .bin/words: FORCE
	GOWORK=off go build -C tools -o ../$@ ./cmd/$(@F)

package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestCheckDocs(t *testing.T) {
	files := fstest.MapFS{
		"go.mod": {Data: []byte("module example.com/shop\n")},
		"core/core.go": {Data: []byte(`// Package core has an [Endpoint], which [New] makes.
package core

// Endpoint has a [Config.Limit] and a [Runner.Run], see [context.Context] and []byte.
type Endpoint struct {
	// Config is that of [core.New]. Its values are [A, B).
	Config Config
}

// Config is for an [*Endpoint]:
//
//	[Nothing]
type Config struct{ Limit int }

// Runner runs.
type Runner interface {
	// Run ends with [Endpoint.Close].
	Run()
}

// Close ends [Runner.Run].
func (*Endpoint) Close() {}

// New makes an [Endpoint].
func New(Config) *Endpoint { return nil }

// unexported has [Nothing].
func unexported() {}
`)},
		"core/core_test.go": {Data: []byte("// Package core has [Nothing].\npackage core\n")},
		"health/health.go": {Data: []byte(`// Package health uses a [core.Endpoint] and [core.Endpoint.Close].
package health

import "example.com/shop/core"

// Of is for an endpoint.
func Of(*core.Endpoint) {}
`)},
		"bad/bad.go": {Data: []byte(`// Package bad has a [Name] that is missing.
package bad

import "example.com/shop/core"

type (
	// Type has no [Type.Method].
	Type struct {
		// Field is a [*core.Nothing], or a
		// [core.Endpoint.Open].
		Field core.Endpoint
	}
	// Interface has [Type.Field], not
	// [Type.Other].
	Interface interface {
		// Method is like [Interface.Methods].
		Method()
	}
)

// Value is an [unknown.Name].
//
//   - [Item] of a list
const Value = 1

// Function is [bad.Type], not [bad.Typo].
func Function() {}

// Third has [Type.Field.Method].
func Third() {}
`)},
	}
	if broken := checkDocs(files, []string{"core/core.go", "core/core_test.go", "health/health.go"}); len(broken) > 0 {
		t.Errorf("of good links some are broken: %q", broken)
	}
	broken := checkDocs(files, []string{"core/core.go", "bad/bad.go"})
	want := []string{
		"bad/bad.go:10: [core.Endpoint.Open]", "bad/bad.go:14: [Type.Other]", "bad/bad.go:16: [Interface.Methods]", "bad/bad.go:1: [Name]",
		"bad/bad.go:21: [unknown.Name]", "bad/bad.go:23: [Item]", "bad/bad.go:26: [bad.Typo]", "bad/bad.go:29: [Type.Field.Method]", "bad/bad.go:7: [Type.Method]", "bad/bad.go:9: [core.Nothing]",
	}
	if len(broken) != len(want) {
		t.Errorf("%d links are broken, want %d: %q", len(broken), len(want), broken)
	}
	for i, line := range broken {
		if i < len(want) && !strings.HasPrefix(line, want[i]+": ") {
			t.Errorf("broken link %d is %q, want %q", i, line, want[i])
		}
	}
}

func TestCheckDocs_InvalidSource(t *testing.T) {
	files := fstest.MapFS{"a.go": {Data: []byte("package")}}
	if broken := checkDocs(files, []string{"a.go"}); len(broken) != 1 || !strings.HasPrefix(broken[0], "a.go:") {
		t.Errorf("broken links are %q, want the error of the parser", broken)
	}
}

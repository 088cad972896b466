package conformance

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/reprise-go/reprise/conformance/internal/suite"
	"github.com/reprise-go/reprise/core"
)

// filler fills values with content that differs from field to field.
type filler struct {
	count  int
	called string // the path of the function that was called last
}

func (f *filler) fill(path string, v reflect.Value) {
	f.count++
	switch v.Kind() {
	case reflect.String:
		v.SetString(path)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.count))
	case reflect.Uint64:
		v.SetUint(uint64(f.count))
	case reflect.Float64:
		v.SetFloat(float64(f.count))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(fmt.Sprint(path, i), v.Index(i))
		}
	case reflect.Uint8:
		v.SetUint(uint64(f.count))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(path+" key", key)
		f.fill(path+" value", value)
		v.SetMapIndex(key, value)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				f.fill(path+"."+field.Name, v.Field(i))
			}
		}
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value {
			f.called = path
			var results []reflect.Value
			for out := range v.Type().Outs() {
				results = append(results, reflect.Zero(out))
			}
			return results
		}))
	case reflect.Interface:
		v.Set(reflect.ValueOf(fakeNetwork(path)))
	}
}

// compare reports the exported fields in which two values of the same shape differ. Functions
// differ if calls of them do.
func (f *filler) compare(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch {
	case a.Kind() != b.Kind():
		t.Errorf("%s has the kinds %v and %v", path, a.Kind(), b.Kind())
	case a.Kind() == reflect.Struct && a.Type() != b.Type():
		for i := range a.NumField() {
			if field := a.Type().Field(i); field.IsExported() {
				if other := b.FieldByName(field.Name); other.IsValid() {
					f.compare(t, path+"."+field.Name, a.Field(i), other)
				} else {
					t.Errorf("%v lacks the field %s of %v", b.Type(), field.Name, a.Type())
				}
			}
		}
		for i := range b.NumField() {
			if field := b.Type().Field(i); field.IsExported() && !a.FieldByName(field.Name).IsValid() {
				t.Errorf("%v lacks the field %s of %v", a.Type(), field.Name, b.Type())
			}
		}
	case a.Kind() == reflect.Slice && a.Type() != b.Type():
		if a.Len() != b.Len() {
			t.Fatalf("%s has %d and %d elements", path, a.Len(), b.Len())
		}
		for i := range a.Len() {
			f.compare(t, fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))
		}
	case a.Kind() == reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			t.Errorf("%s is %v and %v", path, a, b)
			return
		}
		f.compare(t, path, a.Elem(), b.Elem())
	case a.Kind() == reflect.Func:
		if callZero(a); f.called != path {
			t.Errorf("a call of %s calls %q", path, f.called)
		}
		f.called = ""
		if b.IsNil() {
			t.Errorf("%s is nil", path)
		} else if callZero(b); f.called != path {
			t.Errorf("a call of %s calls %q", path, f.called)
		}
	case a.Type().ConvertibleTo(b.Type()) && reflect.DeepEqual(a.Convert(b.Type()).Interface(), b.Interface()):
	default:
		t.Errorf("%s is %v and %v", path, a, b)
	}
}

// callZero calls a function with zero values.
func callZero(function reflect.Value) {
	var arguments []reflect.Value
	for in := range function.Type().Ins() {
		arguments = append(arguments, reflect.Zero(in))
	}
	function.Call(arguments)
}

// fakeNetwork is a Broker, a Network and a Line.
type fakeNetwork string

func (fakeNetwork) Kill(testing.TB)             {}
func (fakeNetwork) Start(testing.TB)            {}
func (fakeNetwork) Cut(testing.TB) func()       { return nil }
func (fakeNetwork) Partition(testing.TB) func() { return nil }
func (fakeNetwork) Silence()                    {}
func (fakeNetwork) SilenceBroker()              {}

func TestHarness_EveryFieldReachesTheSuite(t *testing.T) {
	var f filler
	var h Harness
	f.fill("Harness", reflect.ValueOf(&h).Elem())
	f.compare(t, "Harness", reflect.ValueOf(h), reflect.ValueOf(h.forSuite()))
}

func TestHarness_EmptyFieldsStayEmpty(t *testing.T) {
	if s := reflect.ValueOf(Harness{}.forSuite()); !s.IsZero() {
		t.Errorf("an empty harness becomes %+v", s)
	}
}

func TestHarness_ResultsOfFunctionsReachTheSuite(t *testing.T) {
	dead := []DeadLetter{{Body: []byte("body"), Reason: "reason", Description: "description"}, {Reason: "another"}}
	dead[0].Headers.Set("key", "value")
	transport := &fakeTransport{}
	s := Harness{
		OpenOnLine:  func(testing.TB) (core.Transport, Line) { return transport, fakeNetwork("line") },
		Separate:    func(testing.TB) Harness { return Harness{Name: "separate", Timeout: time.Second} },
		DeadLetters: func(testing.TB, string) []DeadLetter { return dead },
	}.forSuite()
	if opened, line := s.OpenOnLine(t); opened != core.Transport(transport) || line != suite.Line(fakeNetwork("line")) {
		t.Errorf("OpenOnLine returns %v and %v", opened, line)
	}
	if separate := s.Separate(t); separate.Name != "separate" || separate.Timeout != time.Second {
		t.Errorf("Separate returns %+v", separate)
	}
	var f filler
	f.compare(t, "DeadLetters", reflect.ValueOf(dead), reflect.ValueOf(s.DeadLetters(t, "queue")))
}

// fakeTransport is told from other transports.
type fakeTransport struct {
	core.Transport
	_ int
}

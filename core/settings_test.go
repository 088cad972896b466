package core

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// configStructs are the structs that hold settings.
var configStructs = []reflect.Type{
	reflect.TypeFor[Config](), reflect.TypeFor[Recoverability](), reflect.TypeFor[Immediate](), reflect.TypeFor[Delayed](),
	reflect.TypeFor[UnacceptableMessageLimit](), reflect.TypeFor[RateLimit](),
}

func TestSettings_NameFields(t *testing.T) {
	fields := map[string]bool{}
	for _, owner := range configStructs {
		for _, field := range reflect.VisibleFields(owner) {
			fields[owner.Name()+"."+field.Name] = true
			if field.Type.Kind() == reflect.Struct && !slices.Contains(configStructs, field.Type) {
				t.Errorf("%v.%s is a %v, which is not one of the structs that hold settings", owner, field.Name, field.Type)
			}
		}
	}
	for name := range settings {
		if !fields[name] {
			t.Errorf("settings declares %s, which is no field", name)
		}
	}
}

func TestSettings_AMessageTypeHasTheFieldsOfItsEndpoint(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[TypeRecoverability]()) {
		same, ok := reflect.TypeFor[Recoverability]().FieldByName(field.Name)
		if !ok {
			same, ok = reflect.TypeFor[Config]().FieldByName(field.Name)
		}
		if !ok || same.Type != field.Type {
			t.Errorf("%s: the endpoint has no field of this name and type, from which it could be inherited", field.Name)
		}
	}
}

// Lists of the message type are added, other values replaced.
func TestSettings_InheritedFieldByField(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[TypeRecoverability]()) {
		if strings.HasPrefix(field.Name, "Immediate") || strings.HasPrefix(field.Name, "Delayed") || field.Type.Kind() == reflect.Func {
			continue // TestSettings_OverridesMergeFieldByField, TestSettings_OthersOfAMessageType
		}
		var base, own TypeRecoverability
		one, two := example(field.Type, 1), example(field.Type, 2)
		reflect.ValueOf(&base).Elem().FieldByIndex(field.Index).Set(one)
		reflect.ValueOf(&own).Elem().FieldByIndex(field.Index).Set(two)
		want := two
		if field.Type.Kind() == reflect.Slice {
			want = reflect.AppendSlice(one, two)
		}
		if got := reflect.ValueOf(own.over(base)).FieldByIndex(field.Index); !reflect.DeepEqual(got.Interface(), want.Interface()) {
			t.Errorf("%s is %v over %v: got %v", field.Name, two, one, got)
		}
		if got := reflect.ValueOf(TypeRecoverability{}.over(base)).FieldByIndex(field.Index); !reflect.DeepEqual(got.Interface(), one.Interface()) {
			t.Errorf("%s, which is not set, is not inherited: got %v", field.Name, got)
		}
	}
}

// example returns a value of a type that is not 0.
func example(t reflect.Type, n int) reflect.Value {
	v := reflect.New(t).Elem()
	switch {
	case t.Kind() == reflect.String:
		v.SetString(strings.Repeat("x", n))
	case t.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, example(t.Elem(), n)))
	case t == reflect.TypeFor[error]():
		v.Set(reflect.ValueOf(&PanicError{Value: n}))
	default:
		v.SetInt(int64(n))
	}
	return v
}

func TestClone_SharesNoListsAndMaps(t *testing.T) {
	c := Config{
		BaseTypes: map[string][]string{"a": {"b"}}, Observers: []Observer{{}},
		Recoverability: Recoverability{CustomErrorQueues: []string{"a"}, MessageTypes: map[string]TypeRecoverability{"a": {Unrecoverable: []error{errFailed}}}},
	}
	copied := clone(c)
	c.BaseTypes["a"][0], c.Recoverability.CustomErrorQueues[0], c.Recoverability.MessageTypes["a"].Unrecoverable[0] = "x", "x", errListed
	c.BaseTypes["c"], c.Recoverability.MessageTypes["c"] = nil, TypeRecoverability{}
	r := copied.Recoverability
	if copied.BaseTypes["a"][0] != "b" || len(copied.BaseTypes) != 1 || r.CustomErrorQueues[0] != "a" || !errors.Is(r.MessageTypes["a"].Unrecoverable[0], errFailed) || len(r.MessageTypes) != 1 {
		t.Errorf("the copy changed with the original: %+v", copied)
	}
	if (clone(Config{}).Recoverability.MessageTypes) != nil {
		t.Error("a nil map became an empty one")
	}
}

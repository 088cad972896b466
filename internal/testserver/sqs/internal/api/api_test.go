package api

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestFailure_CodesOfTheProtocols(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		shape, typeName, query, fault string
		status                        int
		sns                           string
	}{
		{"QueueDoesNotExist", "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "Sender", 400, "NotFound"},
		{"InternalFailure", "com.amazon.coral.service#InternalFailure", "InternalFailure", "Receiver", 500, "InternalError"},
		{"RequestTimeTooSkewed", "com.amazon.coral.service#RequestTimeTooSkewed", "RequestTimeTooSkewed", "Sender", 403, "RequestTimeTooSkewed"},
		{"Nonsense", "com.amazon.coral.service#Nonsense", "Nonsense", "Sender", 400, "Nonsense"},
	} {
		e := Failure(tt.shape, "%d of %d", 1, 2)
		if e.TypeName() != tt.typeName || e.Query != tt.query || e.Fault() != tt.fault || e.Status != tt.status || e.Message != "1 of 2" {
			t.Errorf("%s: %+v", tt.shape, e)
		}
		if got := e.ForSNS().Query; got != tt.sns {
			t.Errorf("%s: SNS says %s, want %s", tt.shape, got, tt.sns)
		}
	}
}

func TestCheckBatch(t *testing.T) {
	t.Parallel()
	var eleven []string
	for i := range 11 {
		eleven = append(eleven, strconv.Itoa(i))
	}
	for want, ids := range map[string][]string{
		"":                             {"a", "B-1_c", strings.Repeat("x", 80)},
		"EmptyBatchRequest":            {},
		"TooManyEntriesInBatchRequest": eleven,
		"InvalidBatchEntryId":          {"a", "b c"},
		"BatchEntryIdsNotDistinct":     {"a", "b", "a"},
	} {
		got := ""
		if err := CheckBatch("Entry", ids); err != nil {
			got = err.Shape
		}
		if got != want {
			t.Errorf("%q: %s, want %s", ids, got, want)
		}
	}
}

func TestSyntax(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ token, batchID bool }{
		"":                       {false, false},
		"a-Z_0":                  {true, true},
		"a.b!~":                  {true, false},
		"a b":                    {false, false},
		"é":                      {false, false},
		strings.Repeat("x", 80):  {true, true},
		strings.Repeat("x", 81):  {true, false},
		strings.Repeat("x", 129): {false, false},
	} {
		if token, id := IsToken(text), IsBatchID(text); token != want.token || id != want.batchID {
			t.Errorf("%q: token: %t, id of a batch: %t", text, token, id)
		}
	}
	if !SameJSON(`{"a":1,"b":[2]}`, `{"b": [2], "a": 1.0}`) || SameJSON(`{"a":1}`, `{"a":"1"}`) || SameJSON(`{`, `{`) {
		t.Error("SameJSON is wrong")
	}
	if got := TrimARN("arn:aws:sqs:us-east-1:1:orders"); got != "orders" {
		t.Errorf("the name is %q", got)
	}
}

func TestToken_OfAPage(t *testing.T) {
	t.Parallel()
	if last, ok := DecodeToken(EncodeToken("orders")); !ok || last != "orders" {
		t.Errorf("%q, %t", last, ok)
	}
	for _, wrong := range []string{"", "!"} {
		if _, ok := DecodeToken(wrong); ok {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

func TestForm_ListsAndMaps(t *testing.T) {
	t.Parallel()
	values, err := url.ParseQuery("Empty=&Tags.member.1=a&Tags.member.2.Key=b&Tags.member.4=c&Attributes.entry.1.key=k&Attributes.entry.1.value=v" +
		"&MessageAttributes.entry.1.Name=n&MessageAttributes.entry.1.Value.DataType=String&MessageAttributes.entry.1.Value.StringValue=s")
	if err != nil {
		t.Fatal(err)
	}
	f := Form{values}
	if !f.Has("Empty") || f.Optional("None") != nil || *f.Optional("Empty") != "" {
		t.Error("a parameter exists if it is in the form, even if it is empty")
	}
	var prefixes []string
	f.Each("Tags.member", func(p string) { prefixes = append(prefixes, p) })
	if !slices.Equal(prefixes, []string{"Tags.member.1", "Tags.member.2"}) { // a list ends at a gap
		t.Errorf("the items are %q", prefixes)
	}
	if got := f.Strings("Attributes"); !maps.Equal(got, map[string]string{"k": "v"}) {
		t.Errorf("the map is %v", got)
	}
	a := f.Attributes("")["n"]
	if a.DataType == nil || *a.DataType != "String" || *a.StringValue != "s" || a.BinaryValue != nil {
		t.Errorf("the attribute is %+v", a)
	}
}

func TestEntryFailure_WithoutFault(t *testing.T) {
	t.Parallel()
	c := &Call{Host: "localhost:1", Account: "7"}
	if err := c.EntryFailure(0); err != nil {
		t.Error(err)
	}
	if got := c.QueueURL("orders"); got != "http://localhost:1/7/orders" {
		t.Errorf("the URL is %s", got)
	}
}

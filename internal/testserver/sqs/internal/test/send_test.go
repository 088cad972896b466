//go:build darwin || linux

package sqs_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	server "github.com/reprise-go/reprise/internal/testserver/sqs"
)

func text(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: new("String"), StringValue: &value}
}

func TestDelay_OfAMessageAndOfAQueue(t *testing.T) {
	f := start(t, server.Config{})
	delay := func(n int32) func(*sqs.SendMessageInput) {
		return func(in *sqs.SendMessageInput) { in.DelaySeconds = n }
	}
	url := f.queue("q")
	f.send(url, "later", delay(2))
	f.send(url, "latest", delay(900))
	f.counts(url, "0", "0", "2")
	f.Advance(2*time.Second - time.Millisecond)
	f.gets(url)
	f.Advance(time.Millisecond)
	f.gets(url, "later")
	f.counts(url, "0", "1", "1")
	f.Advance(898 * time.Second)
	f.gets(url, "later", "latest") // the visibility timeout of the first has ended, too

	slow := f.queue("slow", "DelaySeconds", "10")
	f.send(slow, "as the queue says")
	f.send(slow, "sooner", delay(1))
	f.Advance(time.Second)
	f.gets(slow, "sooner")
	if err := f.setAttributes(slow, "DelaySeconds", "0"); err != nil {
		t.Fatal(err)
	}
	f.counts(slow, "0", "1", "1") // messages that a standard queue has keep their delay
	f.Advance(9 * time.Second)
	f.gets(slow, "as the queue says")
}

func TestSendMessage_Refuses(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	eleven := map[string]types.MessageAttributeValue{}
	for _, c := range "abcdefghijk" {
		eleven[string(c)] = text("x")
	}
	attribute := func(name string, v types.MessageAttributeValue) func(*sqs.SendMessageInput) {
		return func(in *sqs.SendMessageInput) { in.MessageAttributes = map[string]types.MessageAttributeValue{name: v} }
	}
	tests := map[string]struct {
		change func(*sqs.SendMessageInput)
		code   string
	}{
		"a delay of 901":              {func(in *sqs.SendMessageInput) { in.DelaySeconds = 901 }, "InvalidParameterValue"},
		"a negative delay":            {func(in *sqs.SendMessageInput) { in.DelaySeconds = -1 }, "InvalidParameterValue"},
		"11 attributes":               {func(in *sqs.SendMessageInput) { in.MessageAttributes = eleven }, "InvalidParameterValue"},
		"an empty string":             {attribute("a", text("")), "InvalidParameterValue"},
		"no value":                    {attribute("a", types.MessageAttributeValue{DataType: new("String")}), "InvalidParameterValue"},
		"an empty binary":             {attribute("a", types.MessageAttributeValue{DataType: new("Binary"), BinaryValue: []byte{}}), "InvalidParameterValue"},
		"an unknown type":             {attribute("a", types.MessageAttributeValue{DataType: new("Text"), StringValue: new("x")}), "InvalidParameterValue"},
		"an empty type":               {attribute("a", types.MessageAttributeValue{DataType: new(""), StringValue: new("x")}), "InvalidParameterValue"},
		"a number that is none":       {attribute("a", types.MessageAttributeValue{DataType: new("Number"), StringValue: new("x")}), "InvalidParameterValue"},
		"a control character in one":  {attribute("a", text("\x01")), "InvalidParameterValue"},
		"a name with a reserved part": {attribute("AWS.a", text("x")), "InvalidParameterValue"},
		"a name with two periods":     {attribute("a..b", text("x")), "InvalidParameterValue"},
		"a name with a space":         {attribute("a b", text("x")), "InvalidParameterValue"},
		"an empty body":               {func(in *sqs.SendMessageInput) { in.MessageBody = new("") }, "MissingParameter"},
		"a control character":         {func(in *sqs.SendMessageInput) { in.MessageBody = new("a\x00b") }, "InvalidMessageContents"},
		"U+FFFE":                      {func(in *sqs.SendMessageInput) { in.MessageBody = new("\uFFFE") }, "InvalidMessageContents"},
		"a deduplication id":          {func(in *sqs.SendMessageInput) { in.MessageDeduplicationId = new("d") }, "InvalidParameterValue"},
		"an empty group id":           {func(in *sqs.SendMessageInput) { in.MessageGroupId = new("") }, "InvalidParameterValue"},
		"a group id with a space":     {func(in *sqs.SendMessageInput) { in.MessageGroupId = new("a b") }, "InvalidParameterValue"},
		"a group id of 129":           {func(in *sqs.SendMessageInput) { in.MessageGroupId = new(strings.Repeat("g", 129)) }, "InvalidParameterValue"},
		"an unknown system attribute": {func(in *sqs.SendMessageInput) {
			in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{"Other": {DataType: new("String"), StringValue: new("x")}}
		}, "InvalidParameterValue"},
	}
	for name, tt := range tests {
		in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: new("x")}
		tt.change(in)
		_, err := f.sqs.SendMessage(t.Context(), in)
		if codeOf(err) != tt.code {
			t.Errorf("%s: %v, want %s", name, err, tt.code)
		}
		if tt.code == "InvalidMessageContents" && !is[*types.InvalidMessageContents](err) {
			t.Errorf("%s: %v has no type of its own", name, err)
		}
	}
	f.counts(url, "0", "0", "0")
	f.send(url, "most", func(in *sqs.SendMessageInput) { in.DelaySeconds = 900 })
}

func TestAttributes_ArriveWithTheirChecksums(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	sent := map[string]types.MessageAttributeValue{
		"Hello":   text("There"),
		"General": text("Kenobi"),
		"Help.Me": text("Me"),
	}
	out, err := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: new("msg"), MessageAttributes: sent})
	if err != nil {
		t.Fatal(err)
	}
	// The checksums of this message and of its parts are recorded from the service:
	// test_receive_message_message_attribute_names_filters of LocalStack's tests/aws/services/sqs.
	const all = "4c360f3fdafd970e05fae2f149d997f5"
	if *out.MD5OfMessageAttributes != all || *out.MD5OfMessageBody != "6e2baaf3b97dbeef01c0043275f9a0e7" {
		t.Errorf("checksums %s and %s of the message", *out.MD5OfMessageAttributes, *out.MD5OfMessageBody)
	}
	for _, tt := range []struct {
		ask, want []string
		sum       string
	}{
		{[]string{"All"}, []string{"General", "Hello", "Help.Me"}, all},
		{[]string{".*"}, []string{"General", "Hello", "Help.Me"}, all},
		{[]string{"Hello", "General"}, []string{"General", "Hello"}, "fca026605781cb4126a1e9044df24232"},
		{[]string{"Hello", "Foo"}, []string{"Hello"}, "a311262e065454b75da111d535b8dacd"},
		{[]string{"Hel.*"}, []string{"Hello", "Help.Me"}, "83fee93c1bcd8b9a5a923ffacdc636c7"},
		{[]string{"Foo"}, nil, ""},
		{nil, nil, ""},
	} {
		f.Advance(30 * time.Second)
		m := f.one(url, func(in *sqs.ReceiveMessageInput) { in.MessageAttributeNames = tt.ask })
		if got := slices.Sorted(maps.Keys(m.MessageAttributes)); !slices.Equal(got, tt.want) {
			t.Errorf("%q gets %q, want %q", tt.ask, got, tt.want)
		}
		if sum := deref(m.MD5OfMessageAttributes); sum != tt.sum {
			t.Errorf("%q: checksum %s, want %s", tt.ask, sum, tt.sum)
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestAttributes_OfAllTypes(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	sent := map[string]types.MessageAttributeValue{
		"text":   {DataType: new("String.custom"), StringValue: new("a\n😀")},
		"number": {DataType: new("Number.int"), StringValue: new("-1.5e3")},
		"binary": {DataType: new("Binary.png"), BinaryValue: []byte{0, 1, 255}},
	}
	const trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
	out, err := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{
		QueueUrl: &url, MessageBody: new("x"), MessageAttributes: sent,
		MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
			"AWSTraceHeader": {DataType: new("String"), StringValue: new(trace)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if deref(out.MD5OfMessageSystemAttributes) == "" {
		t.Error("there is no checksum of the system attributes")
	}
	m := f.one(url)
	for name, want := range sent {
		got := m.MessageAttributes[name]
		if deref(got.DataType) != *want.DataType || deref(got.StringValue) != deref(want.StringValue) || !bytes.Equal(got.BinaryValue, want.BinaryValue) {
			t.Errorf("%s arrived as %v", name, got)
		}
	}
	if got := m.Attributes["AWSTraceHeader"]; got != trace {
		t.Errorf("AWSTraceHeader %q", got)
	}
	if *m.MD5OfMessageAttributes != *out.MD5OfMessageAttributes {
		t.Error("the checksum of the attributes is another one at the receive")
	}
}

func TestSize_BodyAndAttributesCount(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	mib := strings.Repeat("x", 1<<20)
	f.send(url, mib)
	if m := f.one(url); *m.Body != mib {
		t.Error("a message of 1 MiB arrived as another")
	}
	try := func(url, body string, attributes map[string]types.MessageAttributeValue) error {
		_, err := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body, MessageAttributes: attributes})
		return err
	}
	f.fails(try(url, mib+"x", nil), "InvalidParameterValue")

	small := f.queue("small", "MaximumMessageSize", "1024")
	// name, type and value: 1 + 6 + 10 bytes
	attributes := map[string]types.MessageAttributeValue{"a": text("0123456789")}
	if err := try(small, strings.Repeat("x", 1024-17), attributes); err != nil {
		t.Errorf("1024 bytes: %v", err)
	}
	f.fails(try(small, strings.Repeat("x", 1024-16), attributes), "InvalidParameterValue")
	f.fails(try(small, strings.Repeat("ä", 513), nil), "InvalidParameterValue") // bytes count, not characters
	out, err := f.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{
		QueueUrl: &small, Entries: batchOf(strings.Repeat("x", 1024), strings.Repeat("x", 1025), "x"), // the batch may be larger
	})
	if err != nil || len(out.Successful) != 2 {
		t.Fatalf("sent %v, %v", out, err)
	}
	failed(t, out.Failed, "b InvalidParameterValue")
}

func TestBody_AnyCharacterThatIsAllowed(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	const body = "\t\r\n ~\u007fäß漢😀\U0010FFFF\uFFFD <a href=\"x\">&amp;</a> {\"k\":\"v\\n\"} \u2028"
	f.send(url, body)
	if got := *f.one(url).Body; got != body {
		t.Errorf("received %q, want %q", got, body)
	}
}

func TestFairQueue_GroupIDArrivesAndQuietTenantsGoFirst(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	for range 15 {
		f.send(url, "noisy", toGroup("noisy", ""))
	}
	f.send(url, "quiet", toGroup("quiet", ""))
	got := f.receive(url) // nothing is in flight before
	if len(got) != 10 || got[0].Attributes["MessageGroupId"] != "noisy" {
		t.Fatalf("received %q", bodies(got))
	}
	if m := f.one(url, maxMessages(1)); *m.Body != "quiet" || m.Attributes["MessageGroupId"] != "quiet" {
		t.Errorf("received %q of %q beside a noisy tenant, want quiet", *m.Body, m.Attributes["MessageGroupId"])
	}
	if got := f.receive(url); len(got) != 5 {
		t.Errorf("received %q, want the rest", bodies(got))
	}
}

func batchOf(bodies ...string) []types.SendMessageBatchRequestEntry {
	var entries []types.SendMessageBatchRequestEntry
	for i, b := range bodies {
		entries = append(entries, types.SendMessageBatchRequestEntry{Id: new(string(rune('a' + i))), MessageBody: &b})
	}
	return entries
}

func TestSendMessageBatch_PartialFailure(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	entries := batchOf("good", "a\x00b", "", "delayed", "number")
	entries[3].DelaySeconds = 901
	entries[4].MessageAttributes = map[string]types.MessageAttributeValue{"n": {DataType: new("Number"), StringValue: new("x")}}
	out, err := f.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Successful) != 1 || *out.Successful[0].Id != "a" || len(out.Failed) != 4 {
		t.Fatalf("%d succeeded and %d failed, want 1 and 4", len(out.Successful), len(out.Failed))
	}
	for i, want := range []string{"InvalidMessageContents", "MissingParameter", "InvalidParameterValue", "InvalidParameterValue"} {
		if e := out.Failed[i]; *e.Code != want || !e.SenderFault || deref(e.Message) == "" || *e.Id != string(rune('b'+i)) {
			t.Errorf("entry %s failed with %s (%q), want %s", *e.Id, *e.Code, deref(e.Message), want)
		}
	}
	f.gets(url, "good")
}

func TestSendMessageBatch_Refuses(t *testing.T) {
	f := start(t, server.Config{})
	url := f.queue("q")
	send := func(entries []types.SendMessageBatchRequestEntry) error {
		_, err := f.sqs.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
		return err
	}
	withID := func(id string) []types.SendMessageBatchRequestEntry {
		e := batchOf("x", "y")
		e[1].Id = &id
		return e
	}
	half := strings.Repeat("x", 1<<19)
	long := send(batchOf(half, half+"x"))
	if !is[*types.BatchRequestTooLong](long) {
		t.Errorf("%v, want BatchRequestTooLong", long)
	}
	for code, err := range map[string]error{
		"TooManyEntriesInBatchRequest": send(batchOf(slices.Repeat([]string{"x"}, 11)...)),
		"BatchEntryIdsNotDistinct":     send(withID("a")),
		"EmptyBatchRequest":            send([]types.SendMessageBatchRequestEntry{}),
		"InvalidBatchEntryId":          send(withID("a b")),
		"BatchRequestTooLong":          long,
	} {
		f.fails(err, "AWS.SimpleQueueService."+code)
	}
	f.fails(send(withID("")), "AWS.SimpleQueueService.InvalidBatchEntryId")
	f.fails(send(withID(strings.Repeat("i", 81))), "AWS.SimpleQueueService.InvalidBatchEntryId")
	f.counts(url, "0", "0", "0")
	if err := send(batchOf(half, half)); err != nil {
		t.Errorf("1 MiB: %v", err)
	}
}

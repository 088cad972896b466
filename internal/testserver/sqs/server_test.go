//go:build darwin || linux

package sqs

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// post sends a request without the SDK.
func post(t *testing.T, s *Server, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(answer)
}

func TestErrors_AsTheProtocolsHaveThem(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{})
	for name, tt := range map[string]struct {
		body, target  string
		status        int
		query, answer string
	}{
		"a modelled error": {
			`{"QueueName":"none"}`, "AmazonSQS.GetQueueUrl", 400,
			"AWS.SimpleQueueService.NonExistentQueue;Sender", `{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}`,
		},
		"another error": {
			`{"QueueName":"a b"}`, "AmazonSQS.CreateQueue", 400, "InvalidParameterValue;Sender",
			`{"__type":"com.amazon.coral.service#InvalidParameterValueException","message":"Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"}`,
		},
		"an unknown operation": {
			`{}`, "AmazonSQS.Nonsense", 400, "InvalidAction;Sender",
			`{"__type":"com.amazon.coral.service#InvalidAction","message":"The action Nonsense is not valid for this endpoint."}`,
		},
		"malformed JSON": {`{`, "AmazonSQS.SendMessage", 400, "MalformedInput;Sender", ""},
	} {
		response, answer := post(t, s, tt.body, "X-Amz-Target", tt.target, "Content-Type", "application/x-amz-json-1.0")
		if response.StatusCode != tt.status || response.Header.Get("X-Amzn-Query-Error") != tt.query || response.Header.Get("X-Amzn-Requestid") == "" {
			t.Errorf("%s: %d with %v", name, response.StatusCode, response.Header)
		}
		if tt.answer != "" && strings.TrimSpace(answer) != tt.answer {
			t.Errorf("%s: %s, want %s", name, answer, tt.answer)
		}
	}
	response, answer := post(t, s, "Action=Publish&Version=2010-03-31&TopicArn=arn:aws:sns:us-east-1:123456789012:none&Message=x")
	const want = `<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender</Type><Code>NotFound</Code><Message>Topic does not exist</Message></Error>`
	if response.StatusCode != 404 || !strings.HasPrefix(answer, want) {
		t.Errorf("SNS: %d, %s", response.StatusCode, answer)
	}
	if response, answer := post(t, s, "Action=Nonsense&Version=2010-03-31"); response.StatusCode != 400 || !strings.Contains(answer, "InvalidAction") {
		t.Errorf("SNS: %d, %s", response.StatusCode, answer)
	}
}

func TestQueueURL_HasTheHostThatTheClientCalls(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{})
	_, answer := post(t, s, `{"QueueName":"q"}`, "X-Amz-Target", "AmazonSQS.CreateQueue")
	var got struct {
		QueueURL string `json:"QueueUrl"`
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil || got.QueueURL != s.QueueURL("q") {
		t.Errorf("URL %q, %v, want %q", got.QueueURL, err, s.QueueURL("q"))
	}
}

func TestStart_Fails(t *testing.T) {
	t.Parallel()
	if _, err := Start(Config{File: filepath.Join(t.TempDir(), "none", "journal")}); err == nil || !strings.HasPrefix(err.Error(), "sqs: start: open the journal:") {
		t.Errorf("with a journal that cannot be created: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Start(Config{Addr: l.Addr().String()}); err == nil {
		t.Error("started on an address that is in use")
	}
	for content, want := range map[string]string{
		"{\n": "line 1", `{"do":"send","q":7}` + "\n": "there is no queue 7",
		`{"do":"queue","q":1,"queue":{"name":"q","attributes":{}}}` + "\n" + `{"do":"dance","q":1}` + "\n": "line 2",
	} {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Start(Config{File: path}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "to fix:") {
			t.Errorf("with the journal %q: %v, want %q", content, err, want)
		}
	}
}

func TestJournal_CutOffEntryIsForgotten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	s := StartFor(t, Config{File: path})
	post(t, s, `{"QueueName":"q"}`, "X-Amz-Target", "AmazonSQS.CreateQueue")
	post(t, s, `{"QueueUrl":"`+s.QueueURL("q")+`","MessageBody":"x"}`, "X-Amz-Target", "AmazonSQS.SendMessage")
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"at":1,"do":"purge","q"`); err != nil {
		t.Fatal(err)
	}
	file.Close()
	for range 2 { // the second time the rest of it is gone
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		if c, ok := s.Contents("q"); !ok || len(c.Ready) != 1 || c.Ready[0].Body != "x" {
			t.Errorf("contents %+v, %t", c, ok)
		}
		post(t, s, `{"QueueUrl":"`+s.QueueURL("q")+`"}`, "X-Amz-Target", "AmazonSQS.ListQueueTags")
	}
}

func TestJournal_FailedWriteIsNotAnswered(t *testing.T) {
	t.Parallel()
	s, err := Start(Config{File: filepath.Join(t.TempDir(), "journal")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.current().closeFile(); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL(), strings.NewReader(`{"QueueName":"q"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0")
	r.Header.Set("X-Amz-Target", "AmazonSQS.CreateQueue")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if response, err := client.Do(r); err == nil {
		response.Body.Close()
		t.Errorf("answered %d", response.StatusCode)
	}
	if err := s.Stop(); err == nil || !strings.Contains(err.Error(), "write the journal") {
		t.Errorf("Stop returned %v, want the error of the journal", err)
	}
	if err := s.Stop(); err != nil && strings.Contains(err.Error(), "write the journal") {
		t.Errorf("the second time: %v", err)
	}
}

func TestKill_NothingChangesAfterIt(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{File: filepath.Join(t.TempDir(), "journal")})
	post(t, s, `{"QueueName":"q"}`, "X-Amz-Target", "AmazonSQS.CreateQueue")
	post(t, s, "Action=CreateTopic&Version=2010-03-31&Name=t")
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	s.Advance(time.Minute) // must not write to the journal, which is closed
	if s.SubscribeQueue("t", "q") {
		t.Error("a killed server has subscribed a queue")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if !s.SubscribeQueue("t", "q") {
		t.Error("after the restart no queue can be subscribed")
	}
}

func TestAwaitPolls_EndsWithAnError(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{})
	if err := s.AwaitPolls(t.Context(), "none", 1); err == nil {
		t.Error("polls wait at a queue that is not there")
	}
}

func TestAdvance_OnlyForward(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	s := StartFor(t, Config{Now: func() time.Time { return now }})
	s.Advance(time.Hour)
	if got := s.Now(); !got.Equal(now.Add(time.Hour)) {
		t.Errorf("the clock shows %s, want %s", got, now.Add(time.Hour))
	}
	defer func() {
		if recover() == nil {
			t.Error("the clock went back")
		}
	}()
	s.Advance(-1)
}

func TestRequestsAt_ReturnsCounts(t *testing.T) {
	t.Parallel()
	s := StartFor(t, Config{})
	post(t, s, `{"QueueName":"orders"}`, "X-Amz-Target", "AmazonSQS.CreateQueue")
	for range 2 {
		post(t, s, `{"QueueName":"none & none"}`, "X-Amz-Target", "AmazonSQS.GetQueueUrl")
	}
	for range 2 { // reading the counts changes nothing
		for name, want := range map[string]map[string]int{
			"":            {"CreateQueue": 1, "GetQueueUrl": 2},
			"orders":      {"CreateQueue": 1},
			"none & none": {"GetQueueUrl": 2},
			"error":       {},
		} {
			if got, err := RequestsAt(t.Context(), s.URL(), name); err != nil || !maps.Equal(got, want) {
				t.Errorf("the counts of %q are %v (%v), want %v", name, got, err, want)
			}
		}
	}
}

func TestRequestsAt_RefusesOtherServers(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	if got, err := RequestsAt(t.Context(), other.URL, ""); err == nil {
		t.Errorf("a server without counts returned %v", got)
	}
}

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const loginDeadline = 10 * time.Second

// question is a case of ../logins/cases.py.
type question struct {
	Name, Bootstrap, Protocol, Mechanism, User, Password, Token, CA, Certificate, Topic, Group string
}

// logins prints a JSON line for each case of the file.
func logins(file string) {
	var questions []question
	check(json.Unmarshal(must(os.ReadFile(file)), &questions))
	out := json.NewEncoder(os.Stdout)
	for _, q := range questions {
		check(out.Encode(map[string]any{"case": q.Name, "outcome": q.outcome()}))
	}
}

func (q *question) outcome() any {
	ctx, cancel := context.WithTimeout(context.Background(), loginDeadline)
	defer cancel()
	client := must(kgo.NewClient(q.options()...))
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return said(err)
	}
	record := &kgo.Record{Topic: q.Topic, Value: []byte("franz-go")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return said(err)
	}
	reader := must(kgo.NewClient(append(
		q.options(), kgo.ConsumerGroup(q.Group), kgo.ConsumeTopics(q.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)...))
	defer reader.Close()
	fetches := reader.PollRecords(ctx, 1)
	for _, failed := range fetches.Errors() {
		return said(failed.Err)
	}
	return "read"
}

func (q *question) options() []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(q.Bootstrap), kgo.RequestRetries(0), kgo.RecordRetries(0),
		kgo.RetryTimeout(time.Second),
	}
	if strings.HasSuffix(q.Protocol, "SSL") {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(must(os.ReadFile(q.CA)))
		config := &tls.Config{RootCAs: pool}
		if q.Certificate != "" {
			pair := must(tls.LoadX509KeyPair(q.Certificate, q.Certificate))
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	switch q.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: q.User, Pass: q.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		auth := scram.Auth{User: q.User, Pass: q.Password}
		options = append(options, kgo.SASL(auth.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		auth := scram.Auth{User: q.User, Pass: q.Password}
		options = append(options, kgo.SASL(auth.AsSha512Mechanism()))
	case "OAUTHBEARER":
		token := string(must(os.ReadFile(q.Token)))
		options = append(options, kgo.SASL(oauth.Auth{Token: token}.AsMechanism()))
	}
	return options
}

var (
	address = regexp.MustCompile(`127\.0\.0\.1:\d+(->127\.0\.0\.1:\d+)?`)
	moment  = regexp.MustCompile(`: current time .*`)
)

// said is the error's name, if a broker has answered with one, and what it says without addresses.
// Which alert a broker sends for a client's bad certificate is up to its TLS library; a client that
// still writes may see the connection's end before it.
func said(err error) map[string]string {
	var alert tls.AlertError
	var answered *kerr.Error
	says := moment.ReplaceAllString(address.ReplaceAllString(fmt.Sprint(err), "ADDRESS"), "")
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return map[string]string{"error": "nothing in time"}
	case errors.As(err, &alert) || strings.HasPrefix(says, "remote error: tls"),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		return map[string]string{"error": "TLS alert, or the end of the connection"}
	case errors.As(err, &answered):
		return map[string]string{"error": answered.Message, "says": says}
	}
	return map[string]string{"error": "", "says": says}
}

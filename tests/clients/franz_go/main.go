// The scenarios of ../scenarios.json with franz-go. Prints a JSON line for each.
//
//	scenarios BOOTSTRAP PREFIX NAME...
//	scenarios logins FILE
//
// Every topic, group and transactional id begins with PREFIX. A failed scenario prints its failure
// in place of an outcome; the test that compares says the rest.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	deadline = 30 * time.Second
	replicas = 3
)

// outcome is what a scenario prints.
type outcome map[string]any

// world is what every scenario works with.
type world struct {
	ctx       context.Context
	bootstrap []string
	prefix    string
	admin     *kadm.Client
}

var scenarios = map[string]func(*world) outcome{
	"codec-none":                func(w *world) outcome { return w.codec("none", kgo.NoCompression()) },
	"codec-gzip":                func(w *world) outcome { return w.codec("gzip", kgo.GzipCompression()) },
	"codec-snappy":              func(w *world) outcome { return w.codec("snappy", kgo.SnappyCompression()) },
	"codec-lz4":                 func(w *world) outcome { return w.codec("lz4", kgo.Lz4Compression()) },
	"codec-zstd":                func(w *world) outcome { return w.codec("zstd", kgo.ZstdCompression()) },
	"nulls":                     nulls,
	"seek-offset":               seekOffset,
	"seek-time":                 seekTime,
	"pause":                     pause,
	"idempotent":                idempotent,
	"commit-sync":               commitSync,
	"commit-async":              commitAsync,
	"pattern":                   pattern,
	"rebalance":                 rebalance,
	"static-member":             staticMember,
	"cooperative":               cooperative,
	"transaction":               transaction,
	"transaction-offsets":       transactionOffsets,
	"admin-topics":              adminTopics,
	"admin-groups":              adminGroups,
	"list-offsets":              listOffsets,
	"delete-records":            deleteRecords,
	"error-unknown-topic":       errorUnknownTopic,
	"error-topic-exists":        errorTopicExists,
	"error-topic-name":          errorTopicName,
	"error-replication-factor":  errorReplicationFactor,
	"error-config":              errorConfig,
	"error-fewer-partitions":    errorFewerPartitions,
	"error-too-large":           errorTooLarge,
	"error-out-of-range":        errorOutOfRange,
	"error-fenced":              errorFenced,
	"error-illegal-generation":  errorIllegalGeneration,
	"error-unknown-member":      errorUnknownMember,
	"error-group-not-empty":     errorGroupNotEmpty,
	"error-not-enough-replicas": errorNotEnoughReplicas,
}

func main() {
	if os.Args[1] == "logins" {
		logins(os.Args[2])
		return
	}
	bootstrap := strings.Split(os.Args[1], ",")
	client := must(kgo.NewClient(
		kgo.SeedBrokers(bootstrap...),
		kgo.MetadataMinAge(100*time.Millisecond),
	))
	defer client.Close()
	out := json.NewEncoder(os.Stdout)
	for _, name := range os.Args[3:] {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		w := &world{ctx: ctx, bootstrap: bootstrap, prefix: os.Args[2], admin: kadm.NewClient(client)}
		out.Encode(run(w, name))
		cancel()
	}
}

func run(w *world, name string) (line map[string]any) {
	began := time.Now()
	defer func() {
		if failure := recover(); failure != nil {
			line = map[string]any{"scenario": name, "failure": fmt.Sprint(failure)}
		}
		line["ms"] = time.Since(began).Milliseconds()
	}()
	scenario, known := scenarios[name]
	if !known {
		panic("this program has no such scenario")
	}
	return map[string]any{"scenario": name, "outcome": scenario(w)}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// errorName is Kafka's name of the error that a broker answered with.
func errorName(err error) string {
	var answered *kerr.Error
	if errors.As(err, &answered) {
		return answered.Message
	}
	return fmt.Sprint(err)
}

// until asks again, without a rush, until it is so.
func (w *world) until(what string, isSo func() bool) {
	for !isSo() {
		select {
		case <-w.ctx.Done():
			panic("not so in time: " + what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (w *world) name(of string) string { return w.prefix + "-" + of }

// topic makes one and returns its whole name. configs: name, value, name, value...
func (w *world) topic(of string, partitions int32, configs ...string) string {
	name, given := w.name(of), map[string]*string{}
	for i := 0; i < len(configs); i += 2 {
		given[configs[i]] = &configs[i+1]
	}
	must(w.admin.CreateTopic(w.ctx, partitions, replicas, given, name))
	w.until("every partition has a leader", func() bool {
		topic := must(w.admin.Metadata(w.ctx, name)).Topics[name]
		for _, partition := range topic.Partitions {
			if partition.Err != nil {
				return false
			}
		}
		return len(topic.Partitions) == int(partitions)
	})
	return name
}

// client has what is given and lives until closed.
func (w *world) client(options ...kgo.Opt) *kgo.Client {
	base := []kgo.Opt{
		kgo.SeedBrokers(w.bootstrap...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond),
	}
	return must(kgo.NewClient(append(base, options...)...))
}

// fill writes numbered values to each partition.
func (w *world) fill(topic string, partitions int32, count int) {
	producer := w.client()
	defer producer.Close()
	for partition := int32(0); partition < partitions; partition++ {
		for i := 0; i < count; i++ {
			value := []byte(fmt.Sprint(i))
			record := &kgo.Record{Topic: topic, Partition: partition, Value: value}
			producer.Produce(w.ctx, record, func(_ *kgo.Record, err error) { check(err) })
		}
	}
	check(producer.Flush(w.ctx))
}

// assigned is a consumer of partition 0.
func (w *world) assigned(topic string, from kgo.Offset, more ...kgo.Opt) *kgo.Client {
	of := map[string]map[int32]kgo.Offset{topic: {0: from}}
	return w.client(append(more, kgo.ConsumePartitions(of))...)
}

// take polls until it has so many records.
func (w *world) take(consumer *kgo.Client, count int) []*kgo.Record {
	var found []*kgo.Record
	for len(found) < count {
		fetches := consumer.PollFetches(w.ctx)
		check(fetches.Err())
		found = append(found, fetches.Records()...)
	}
	return found
}

func (w *world) committed(group, topic string) int64 {
	offsets := must(w.admin.FetchOffsets(w.ctx, group))
	if found, is := offsets.Lookup(topic, 0); is {
		return found.At
	}
	return -1
}

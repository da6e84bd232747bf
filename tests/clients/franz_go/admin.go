package main

import (
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// retention is what one of the brokers says of it, "" if that one does not know the topic yet.
func (w *world) retention(topic string) string {
	described := must(w.admin.DescribeTopicConfigs(w.ctx, topic))
	for _, config := range must(described.On(topic, nil)).Configs {
		if config.Key == "retention.ms" {
			return config.MaybeValue()
		}
	}
	return ""
}

// awaitRetention returns when a broker says so: each follows the metadata at its own pace.
func (w *world) awaitRetention(topic, wanted string) string {
	found := ""
	w.until("retention.ms is "+wanted, func() bool {
		found = w.retention(topic)
		return found == wanted
	})
	return found
}

func adminTopics(w *world) outcome {
	topic := w.topic("admin-topics", 3, "retention.ms", "3600000")
	var found kadm.TopicDetail
	w.until("it is described", func() bool {
		found = must(w.admin.Metadata(w.ctx, topic)).Topics[topic]
		return len(found.Partitions) == 3
	})
	result := outcome{
		"partitions": len(found.Partitions),
		"replicas":   len(found.Partitions[0].Replicas),
		"retention":  w.awaitRetention(topic, "3600000"),
	}
	altered := "7200000"
	changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &altered}}
	check(must(must(w.admin.AlterTopicConfigs(w.ctx, changes, topic)).On(topic, nil)).Err)
	result["altered"] = w.awaitRetention(topic, altered)
	check(must(must(w.admin.UpdatePartitions(w.ctx, 5, topic)).On(topic, nil)).Err)
	w.until("it has grown", func() bool {
		return len(must(w.admin.Metadata(w.ctx, topic)).Topics[topic].Partitions) == 5
	})
	result["grown"] = 5
	must(w.admin.DeleteTopic(w.ctx, topic))
	var gone error
	w.until("it is gone", func() bool {
		gone = must(w.admin.Metadata(w.ctx, topic)).Topics[topic].Err
		return gone != nil
	})
	result["after_delete"] = errorName(gone)
	return result
}

func failed(err error) outcome { return outcome{"error": errorName(err)} }

func errorUnknownTopic(w *world) outcome {
	unknown := w.name("unknown")
	return failed(must(w.admin.Metadata(w.ctx, unknown)).Topics[unknown].Err)
}

func errorTopicExists(w *world) outcome {
	_, err := w.admin.CreateTopic(w.ctx, 1, replicas, nil, w.topic("exists", 1))
	return failed(err)
}

func errorTopicName(w *world) outcome {
	_, err := w.admin.CreateTopic(w.ctx, 1, replicas, nil, w.name("not a name!"))
	return failed(err)
}

func errorReplicationFactor(w *world) outcome {
	_, err := w.admin.CreateTopic(w.ctx, 1, 9, nil, w.name("nine"))
	return failed(err)
}

func errorConfig(w *world) outcome {
	value := "never"
	_, err := w.admin.CreateTopic(w.ctx, 1, replicas, map[string]*string{"retention.ms": &value}, w.name("config"))
	return failed(err)
}

func errorFewerPartitions(w *world) outcome {
	topic := w.topic("fewer", 3)
	answer := must(must(w.admin.UpdatePartitions(w.ctx, 2, topic)).On(topic, nil))
	return failed(answer.Err)
}

func errorTooLarge(w *world) outcome {
	producer := w.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer producer.Close()
	value := []byte(strings.Repeat("x", 5_000))
	record := &kgo.Record{Topic: w.topic("too-large", 1, "max.message.bytes", "1000"), Value: value}
	return failed(producer.ProduceSync(w.ctx, record).FirstErr())
}

func errorOutOfRange(w *world) outcome {
	topic := w.topic("out-of-range", 1)
	w.fill(topic, 1, 1)
	consumer := w.assigned(topic, kgo.NewOffset().At(1_000), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer consumer.Close()
	return failed(consumer.PollFetches(w.ctx).Err())
}

func errorFenced(w *world) outcome {
	topic := w.topic("fenced", 1)
	record := func() *kgo.Record { return &kgo.Record{Topic: topic, Value: []byte("v")} }
	begin := func() *kgo.Client {
		producer := w.client(kgo.TransactionalID(w.name("fenced")))
		check(producer.BeginTransaction())
		check(producer.ProduceSync(w.ctx, record()).FirstErr())
		return producer
	}
	old := begin()
	defer old.Close()
	new := begin()
	defer new.Close()
	err := old.ProduceSync(w.ctx, record()).FirstErr()
	if err == nil {
		err = old.EndTransaction(w.ctx, kgo.TryCommit)
	}
	check(new.EndTransaction(w.ctx, kgo.TryCommit))
	if errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) {
		return outcome{"is_fenced": true}
	}
	return failed(err)
}

// A commit for a member that is not, or of a generation that was, as no client would send it.
func (w *world) badCommit(of string, memberID func(string) string, generation int32) outcome {
	topic, group := w.topic(of, 1), w.name(of)
	w.fill(topic, 1, 1)
	m := w.member(group, topic, false)
	defer m.close()
	w.take(m.client, 1)
	id, _ := m.client.GroupMetadata()
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.MemberID, request.Generation = group, memberID(id), generation
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Offset = 1
	of1 := kmsg.NewOffsetCommitRequestTopic()
	of1.Topic, of1.Partitions = topic, []kmsg.OffsetCommitRequestTopicPartition{part}
	described := must(w.admin.Metadata(w.ctx, topic))
	of1.TopicID = [16]byte(described.Topics[topic].ID)
	request.Topics = append(request.Topics, of1)
	answer := must(request.RequestWith(w.ctx, m.client))
	return failed(kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode))
}

func errorIllegalGeneration(w *world) outcome {
	return w.badCommit("illegal-generation", func(id string) string { return id }, 99)
}

func errorUnknownMember(w *world) outcome {
	return w.badCommit("unknown-member", func(string) string { return "nobody" }, 1)
}

func errorGroupNotEmpty(w *world) outcome {
	topic, group := w.topic("group-not-empty", 1), w.name("group-not-empty")
	w.fill(topic, 1, 1)
	m := w.member(group, topic, false)
	defer m.close()
	w.take(m.client, 1)
	_, err := w.admin.DeleteGroup(w.ctx, group)
	return failed(err)
}

// The topic is there already: three replicas, all of which must be in sync, and one broker is dead.
func errorNotEnoughReplicas(w *world) outcome {
	producer := w.client(kgo.RecordRetries(1), kgo.DisableIdempotentWrite())
	defer producer.Close()
	record := &kgo.Record{Topic: w.name("not-enough-replicas"), Value: []byte("v")}
	return failed(producer.ProduceSync(w.ctx, record).FirstErr())
}
